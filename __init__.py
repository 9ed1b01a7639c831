"""warren: an AMQP 0-9-1 message broker in Python, built of actors.

    from warren import Broker

    with Broker() as broker:
        print(broker.url)           # give it to any AMQP 0-9-1 client

`Broker` is a node inside your own process, `Cluster` several nodes that are one broker, and `Settings` the
configuration of a node. The public interface is the names below, those of `warren.extensions`, and what the pages in
`docs` import from `warren.sharding`, `warren.simulation` and `warren.spark`. Everything else may change without notice.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .administration import PolicyInfo
    from .broker import Broker, BrokerError, StartError
    from .embedded_cluster import Cluster
    from .listings import (
        BindingInfo,
        BrokerStats,
        ChannelInfo,
        ConnectionInfo,
        ConsumerInfo,
        ExchangeInfo,
        LongTurn,
        Message,
        QueueInfo,
    )
    from .settings import Settings, SettingsError
    from .version import __version__

__all__ = [
    "BindingInfo",
    "Broker",
    "BrokerError",
    "BrokerStats",
    "ChannelInfo",
    "Cluster",
    "ConnectionInfo",
    "ConsumerInfo",
    "ExchangeInfo",
    "LongTurn",
    "Message",
    "PolicyInfo",
    "QueueInfo",
    "Settings",
    "SettingsError",
    "StartError",
    "__version__",
]

#: The module that defines each public name, unless it is `listings`.
_HOMES = {
    "Broker": "broker",
    "Cluster": "embedded_cluster",
    "PolicyInfo": "administration",
    "BrokerError": "broker",
    "StartError": "broker",
    "Settings": "settings",
    "SettingsError": "settings",
    "__version__": "version",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: `import warren` alone must cost nothing, because the command line imports it for --help
    # too.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES.get(name, 'listings')}", __name__), name)


def __dir__() -> list[str]:
    return __all__
