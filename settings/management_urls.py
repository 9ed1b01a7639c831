"""Where the management process listens, as operators read it."""

from __future__ import annotations

from .settings import Settings


def management_urls(settings: Settings) -> list[tuple[str, str]]:
    """Where the management process will listen, which starts beside the node."""
    if not settings.management:
        return []
    host = settings.management_host or settings.host
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    api, metrics = settings.management_port, settings.prometheus_port
    return [
        *([("management", f"http://{host}:{api}{settings.management_path_prefix}/")] if api else []),
        *([("metrics", f"http://{host}:{metrics}/metrics")] if metrics else []),
    ]
