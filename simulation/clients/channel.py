"""`SimChannel`: a channel of a simulated client.

It performs its actions of the plan one after another, waits for the answer where AMQP has one, and reports to the model
what it sends and receives. `PublishingSide`, `ConsumingSide` and the functions of `declaring` divide the work.

The broker handles the methods of a channel in order, so the answer to a method proves that all earlier ones arrived. A
request therefore remembers the publishes and settlements that are unproven when it is sent, and its answer reports them
to the model as arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...amqp import methods
from ...amqp.method import Method
from ...amqp.properties import Properties
from ..model.copies import Copy, CopyState, PromiseBroken, mark_arrived, mark_maybe_lost, mark_returned, mark_settled
from ..model.queue_model import QueueModel
from ..plan import CONFIRMING, TRANSACTIONAL, Action
from . import declaring
from .consuming import ConsumingSide
from .peer import SimContent
from .publishing import PublishingSide

if TYPE_CHECKING:
    from .client import Client

#: Called with the answer to a request.
OnAnswer = Callable[[Method, SimContent | None], None]


class SimChannel:
    """See the module. The channel is opened when the object is made."""

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number
        self.schedule = client.schedule
        #: Whether it is about to end, by its own close or by a crash. What arrives now proves nothing.
        self.is_leaving = False
        #: Actions that wait until a request is answered.
        self.todo: deque[Action] = deque()
        #: Names of the queues that it has declared.
        self.declared: set[str] = set()
        #: Whether the broker may close it at any moment: others may see the consequences before the close arrives.
        self.may_be_closed = False
        #: Whether the broker may refuse its declare, because an exclusive queue may belong to another connection.
        self.may_be_locked_out = False
        self.publishing = PublishingSide(self)
        self.consuming = ConsumingSide(self)
        #: Publishes since the last request.
        self._unproven: list[Copy] = []
        #: Acknowledgements since the last request.
        self._unproven_settled: list[Copy] = []
        #: Publishes and acknowledgements before the request in flight, which its answer proves.
        self._awaiting_proof: list[tuple[list[Copy], list[Copy]]] = []
        #: The possible answers to the request in flight, and what to do with the answer.
        self._expected: tuple[tuple[type[Method], ...], OnAnswer] | None = None
        #: The queue that the request in flight concerns.
        self._requested_queue: QueueModel | None = None
        self.request(methods.ChannelOpen(), methods.ChannelOpenOk, self._opened)

    def __str__(self) -> str:
        return f"{self.client.name}/{self.number}"

    @property
    def is_transactional(self) -> bool:
        return self.number == TRANSACTIONAL

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.schedule.tell(str(self), text)

    # -- sending ---

    def send(self, method: Method, body: bytes | None = None, properties: Properties | None = None) -> None:
        self.client.send(self.number, method, body, properties)

    def request(
        self,
        method: Method,
        answers: type[Method] | tuple[type[Method], ...],
        on_answer: OnAnswer,
        queue: QueueModel | None = None,
        may_be_refused: bool | None = None,
    ) -> None:
        """Send a method that is answered. The next action waits for the answer.

        The broker may close the channel instead of answering if `may_be_refused` is true, and always if the process of
        `queue` may be down. By default `may_be_refused` is true if `queue` is perhaps missing or exclusive to another
        connection.
        """
        self._requested_queue = queue
        if may_be_refused is None:
            may_be_refused = queue is not None and not queue.may_be_used_by(self.client.connection)
        if may_be_refused or queue is not None and queue.may_be_down:
            self._may_be_closed_now()
        self._awaiting_proof.append((self._unproven, self._unproven_settled))
        self._unproven, self._unproven_settled = [], []
        self._expected = (answers if isinstance(answers, tuple) else (answers,), on_answer)
        self.send(method)

    def on_queue_may_be_gone(self, queue: QueueModel) -> None:
        """The queue may be gone from now on, so a request in flight that concerns it may be refused."""
        if self._requested_queue is queue:
            self._may_be_closed_now()

    def on_queue_crash(self) -> None:
        """A queue's process crashes. A commit in flight may have published to it, and the broker then refuses the
        commit and closes the channel.
        """
        if self._expected is not None and methods.TxCommitOk in self._expected[0]:
            self._may_be_closed_now()

    def _may_be_closed_now(self) -> None:
        if not self.may_be_closed:
            self.may_be_closed = True
            self.consuming.on_may_be_closed()

    def _opened(self, method: Method, content: SimContent | None) -> None:
        if self.number == CONFIRMING:
            self.request(methods.ConfirmSelect(), methods.ConfirmSelectOk, ignore_answer)
        elif self.is_transactional:
            self.request(methods.TxSelect(), methods.TxSelectOk, ignore_answer)

    def sent(self, copies: list[Copy]) -> None:
        """Take note of publishes; the answer to the next request proves that they have arrived."""
        self._unproven += copies

    def start_settling(self, copy: Copy) -> None:
        """Take note of an acknowledgement; the answer to the next request proves that it has arrived."""
        copy.state = CopyState.SETTLING
        self._unproven_settled.append(copy)

    # -- the actions of the plan ---

    def do(self, action: Action) -> None:
        self.todo.append(action)
        self._do_next()

    def _do_next(self) -> None:
        while self.todo and self._expected is None and not self.is_leaving:
            action = self.todo[0]
            name = action.text("queue")
            if name and name not in self.declared and _needs_declare(self.schedule.queues[name], action.what):
                declaring.declare(self, self.schedule.queues[name])
                return
            self.todo.popleft()
            self._do(action)

    def _do(self, action: Action) -> None:
        queue = self.schedule.queues.get(action.text("queue"))
        if queue is not None and action.what in declaring.ACTIONS:
            declaring.ACTIONS[action.what](self, queue)
        elif action.what == "close-channel":
            self._close()
        else:
            part = self.publishing if action.what in ("publish", "commit", "rollback") else self.consuming
            getattr(part, "do_" + action.what)(action)

    # -- methods from the broker ---

    def on_method(self, method: Method, content: SimContent | None) -> None:
        if isinstance(method, methods.BasicDeliver):
            assert content is not None
            self.consuming.on_deliver(method, content)
        elif isinstance(method, (methods.BasicAck, methods.BasicNack)):
            self.publishing.on_confirm(method)
        elif isinstance(method, methods.BasicReturn):
            assert content is not None
            self.publishing.on_return(method, content)
        elif isinstance(method, methods.BasicCancel):
            if method.consumer_tag not in self.consuming.reads:
                self.tell(f"receives a cancel for {method.consumer_tag}")
            self.consuming.on_cancel(method.consumer_tag)
        elif isinstance(method, methods.ChannelClose):
            self._on_close(method)
        elif self._expected is not None and type(method) in self._expected[0]:
            _, on_answer = self._expected
            self._expected = self._requested_queue = None
            self.may_be_closed = False
            published, settled = self._awaiting_proof.pop()
            mark_arrived(published)
            mark_settled(settled, self)
            self.publishing.on_proof()
            on_answer(method, content)
            self._do_next()
        else:
            raise PromiseBroken(f"{self} received {type(method).__name__}, which it had not requested")

    # -- the end ---

    def _close(self) -> None:
        self.tell("closes the channel")
        self.request(
            methods.ChannelClose(200, "done"),
            methods.ChannelCloseOk,
            lambda method, content: self.client.remove_channel(self),
        )
        self.leave()

    def leave(self) -> None:
        """The channel is about to end. The broker requeues, now or soon, what the channel holds."""
        self.is_leaving = True
        self.todo.clear()
        self.consuming.leave()

    def on_process_crash(self, is_certain: bool = True) -> None:
        """The process of the channel or its connection crashes now; the close will arrive later.

        If not `is_certain`, the process may have ended its work before, and the connection may go on.
        """
        for copies in [
            *(published for published, _ in self._awaiting_proof),
            self._unproven,
            *(message.copies for message in self.publishing.unconfirmed.values()),
        ]:
            mark_maybe_lost(copies)
        for settled in [*(settled for _, settled in self._awaiting_proof), self._unproven_settled]:
            mark_returned(settled, self)
        if is_certain:
            self.leave()
        else:
            # Until an answer on this channel shows that the connection goes on.
            self.may_be_closed = True
            self.consuming.connection_may_end()

    def waits_for(self) -> str:
        """The answer or the confirms that have not arrived, as a text; empty if there are none."""
        if self._expected is not None:
            return f"{self} waits for {self._expected[0][0].__name__}"
        unconfirmed = self.publishing.unconfirmed
        return (
            f"{self} waits for confirms of {[message.number for message in unconfirmed.values()]}"
            if unconfirmed
            else ""
        )

    def ended(self, in_order: bool) -> None:
        """The channel has ended; `in_order` if the broker has received everything that the client sent on it."""
        self.is_leaving = True
        for published, settled in [*self._awaiting_proof, (self._unproven, self._unproven_settled)]:
            if in_order:
                mark_arrived(published)
                mark_settled(settled, self)
            else:
                mark_maybe_lost(published)
                mark_returned(settled, self)
        self.consuming.leave()

    def _on_close(self, method: methods.ChannelClose) -> None:
        self.tell(f"is closed by the broker: {method.reply_code} {method.reply_text}")
        queues = self.schedule.queues.values()
        is_missing = method.reply_code == 404 and any(
            queue.exists is not True or queue.delete_count for queue in queues
        )
        is_refused = method.reply_code == 406 and "partial tx completion" in method.reply_text
        is_exclusive = self._requested_queue is not None and self._requested_queue.kind.exclusive
        is_locked_out = method.reply_code == 405 and (self.may_be_locked_out or is_exclusive and self.may_be_closed)
        if not (is_missing or is_refused or is_locked_out or self.schedule.has_crashed):
            raise PromiseBroken(f"{self} was closed for no reason: {method.reply_text}")
        self.send(methods.ChannelCloseOk())
        self.client.remove_channel(self, in_order=False)


def ignore_answer(method: Method, content: SimContent | None) -> None:
    """The handler of answers that need nothing but their arrival."""


def _needs_declare(queue: QueueModel, what: str) -> bool:
    """Whether the queue must be declared before this action.

    Not before a publish to an exclusive queue that exists: the declare of another connection would be refused, but
    everyone may publish.
    """
    return what not in ("delete", "purge") and not (what == "publish" and queue.kind.exclusive and queue.exists)
