"""Where the management process listens, as operators read it."""

from __future__ import annotations

from .settings import Settings


def management_urls(settings: Settings) -> list[tuple[str, str]]:
    """The kind and the URL of each port on which the management process of a node with these settings will listen."""
    if not settings.management:
        return []
    host = settings.management_host or settings.host
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    api, metrics = settings.management_port, settings.prometheus_port
    return [
        *([("management", f"http://{host}:{api}{settings.management_path_prefix}/")] if api else []),
        *([("metrics", f"http://{host}:{metrics}/metrics")] if metrics else []),
    ]
