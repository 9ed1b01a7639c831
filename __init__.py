"""warren: an AMQP 0-9-1 message broker in Python, built of actors.

    from warren import Broker

    with Broker(port=0) as broker:
        print(broker.url)           # give it to any AMQP 0-9-1 client

`Broker` is a node inside your own process, `Settings` what may be said about it. Nothing else here is public.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .broker import Broker
    from .settings import Settings

__all__ = ["Broker", "Settings"]


def __getattr__(name: str) -> Any:
    # Imported on first use: `import warren` alone must cost nothing (the command line asks for help and versions too).
    if name == "Broker":
        from .broker import Broker

        return Broker
    if name == "Settings":
        from .settings import Settings

        return Settings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
