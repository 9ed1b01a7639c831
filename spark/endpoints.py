"""Endpoints: where a broker, or a node of one, is reached."""

from __future__ import annotations

#: A host and a port.
Endpoint = tuple[str, int]


def endpoint_of(text: str) -> Endpoint:
    """The endpoint `host:port`, in which an IPv6 address may have brackets. Raises ValueError."""
    host, _, port = text.strip().rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def mapped_endpoints(text: str) -> dict[Endpoint, Endpoint]:
    """Pairs `there=here`, several with commas. Raises ValueError."""
    pairs = [pair.split("=") for pair in text.split(",") if pair.strip()]
    return {endpoint_of(there): endpoint_of(here) for there, here in pairs}
