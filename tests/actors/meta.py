"""The messages to Metadata as method calls."""

from __future__ import annotations

from warren.amqp.fields import table_from

V = "/"
WAIT = 300.0
MINE, THEIRS = "connection 1", "connection 2"


class Meta:
    """Sends asks to the Metadata at `address` through `client`, for the virtual host `/`. Errors are raised."""

    def __init__(self, client, address):
        self.client, self.address = client, address

    def ask(self, *message):
        return self.client.ask(self.address, message, WAIT)

    def exchange(self, name, exchange_type="direct", durable=False, auto_delete=False, internal=False, **arguments):
        return self.ask(*self.exchange_message(name, exchange_type, durable, auto_delete, internal, **arguments))

    @staticmethod
    def exchange_message(name, exchange_type, durable=False, auto_delete=False, internal=False, **arguments):
        arguments = table_from({key.replace("_", "-"): value for key, value in arguments.items()})
        return "declare_exchange", V, name, exchange_type, durable, auto_delete, internal, arguments

    def delete_exchange(self, name, if_unused=False):
        return self.ask("delete_exchange", V, name, if_unused)

    @staticmethod
    def queue_message(name, owner=None, durable=False, auto_delete=False, connection=MINE, arguments=None):
        return "declare_queue", V, name, durable, owner, auto_delete, table_from(arguments or {}), owner or connection

    def queue(self, name, **options):
        return self.ask(*self.queue_message(name, **options))

    @staticmethod
    def delete_message(name, connection=MINE, if_unused=False, if_empty=False):
        return "delete_queue", V, name, if_unused, if_empty, connection

    def delete(self, name, **options):
        return self.ask(*self.delete_message(name, **options))

    def bind(self, destination, source, key="k", kind="queue", connection=MINE, arguments=None, verb="bind"):
        return self.ask(verb, V, kind, destination, source, key, table_from(arguments or {}), connection)

    def is_source(self, exchange):
        """Whether any binding has this exchange as its source."""
        return any(row["source_name"] == exchange for row in self.ask("list", "bindings", V))

    def unbind(self, destination, source, **options):
        return self.bind(destination, source, verb="unbind", **options)
