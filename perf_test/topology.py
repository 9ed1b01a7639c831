"""`Topology`: declares the exchange and the queues of a test, unless they are there already."""

from __future__ import annotations

from ..amqp import methods
from ..amqp.fields import table_from
from ..amqp.frames import method_frame
from .connection import LoadConnection
from .options import Options


class Topology:
    """Where producers publish to and what consumers consume from, declared on `connection`."""

    def __init__(self, options: Options, connection: LoadConnection, drawn_key: str) -> None:
        self._options = options
        self._connection = connection
        self._has_drawn_queue = not options.predeclared and not options.queues
        self.exchange = options.exchange
        self.queues: list[str] = list(options.queues)
        connection.call(1, methods.ChannelOpen(), methods.ChannelOpenOk)
        if not options.predeclared:
            self._declare()
        if options.routing_key is not None:
            self.routing_keys = [options.routing_key]
        elif options.exchange:
            self.routing_keys = [drawn_key]
        else:
            self.routing_keys = self.queues
        if not options.predeclared and options.exchange:
            for queue in self.queues:
                bind = methods.QueueBind(queue=queue, exchange=options.exchange, routing_key=self.routing_keys[0])
                connection.call(1, bind, methods.QueueBindOk)

    def _declare(self) -> None:
        options, call = self._options, self._connection.call
        if options.exchange and not options.exchange.startswith("amq."):
            declare = methods.ExchangeDeclare(
                exchange=options.exchange, type=options.exchange_type, durable=options.persistent
            )
            try_passive = methods.ExchangeDeclare(exchange=options.exchange, passive=True)
            if not self._exists(try_passive):
                call(1, declare, methods.ExchangeDeclareOk)
        arguments = table_from(dict(options.queue_arguments))
        for name in options.queues or ("",):
            queue = methods.QueueDeclare(
                queue=name,
                durable=bool(name) and options.persistent,
                auto_delete=options.auto_delete or not name,
                arguments=arguments,
            )
            answer = call(1, queue, methods.QueueDeclareOk)
            if not name:
                self.queues = [answer.queue]

    def end(self) -> None:
        """Delete the queue whose name the broker has generated, because no later test could find it."""
        if self._has_drawn_queue and self._connection.unsent is None:
            self._connection.send(method_frame(1, methods.QueueDelete(queue=self.queues[0], nowait=True)))

    def _exists(self, passive: methods.ExchangeDeclare) -> bool:
        """Whether the exchange exists, of whatever type. The broker closes a channel that asks for a missing one."""
        answer = self._connection.ask(2, passive, methods.ExchangeDeclareOk)
        return answer is not None
