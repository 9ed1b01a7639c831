"""A channel of a simulated client: does its lines of the plan one after the other, waits for answers where AMQP has them, and tells the books what it does and sees.

`Publishing`, `Consuming` and the functions of `declaring` share the work, as they do at the broker's end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...amqp import methods
from ...amqp.properties import Properties
from ..model import book
from ..model.book import Broken, Copy
from ..model.queue_book import QueueBook
from ..plan import CONFIRMING, TRANSACTIONAL, Action
from . import declaring
from .consuming import Consuming
from .peer import SimContent
from .publishing import Publishing

if TYPE_CHECKING:
    from .client import Client

Then = Callable[[Any, "SimContent | None"], None]


class SimChannel:
    """`is_leaving`: it was told to end, or will be by a crash; what comes now is not held against anybody."""

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number
        self.schedule = client.schedule
        self.is_open = False
        self.is_leaving = False
        self.todo: deque[Action] = deque()
        self.declared: set[str] = set()
        self.may_be_closed = (
            False  # by the broker, any moment now: others may see what that means before it is heard here
        )
        self.may_be_locked_out = False  # by the broker, for an exclusive queue may be another's
        self.publishing = Publishing(self)
        self.consuming = Consuming(self)
        self._unheard: list[Copy] = []  # published since the last method that is answered
        self._unheard_settled: list[Copy] = []
        self._asked: list[tuple[list[Copy], list[Copy]]] = []  # what the answer that is waited for proves
        self._expected: tuple[tuple[type, ...], Then] | None = None
        self._asked_of: QueueBook | None = None
        self.ask(methods.ChannelOpen(), methods.ChannelOpenOk, self._opened)

    def __str__(self) -> str:
        return f"{self.client.name}/{self.number}"

    @property
    def is_transactional(self) -> bool:
        return self.number == TRANSACTIONAL

    def tell(self, text: str) -> None:
        self.schedule.tell(str(self), text)

    def send(self, method: Any, body: bytes | None = None, properties: Properties | None = None) -> None:
        self.client.send(self.number, method, body, properties)

    def queue_may_go(self, queue: QueueBook) -> None:
        if self._asked_of is queue:
            self._take_risk()

    def _take_risk(self) -> None:
        if not self.may_be_closed:
            self.may_be_closed = True
            self.consuming.takes_risk()

    def ask(
        self,
        method: Any,
        answers: type | tuple[type, ...],
        then: Then,
        queue: QueueBook | None = None,
        may_be_refused: bool | None = None,
    ) -> None:
        """Send a method that is answered; nothing else is done until it is. The channel is closed instead if it is refused: as what concerns a `queue` is that is down, or, unless
        `may_be_refused` says otherwise, is not there."""
        self._asked_of = queue
        if may_be_refused is None:
            may_be_refused = queue is not None and not queue.may_be_used_by(self.client.connection)
        if may_be_refused or queue is not None and queue.may_be_down:
            self._take_risk()
        self._asked.append((self._unheard, self._unheard_settled))
        self._unheard, self._unheard_settled = [], []
        self._expected = (answers if isinstance(answers, tuple) else (answers,), then)
        self.send(method)

    def _opened(self, method: Any, content: SimContent | None) -> None:
        self.is_open = True
        if self.number == CONFIRMING:
            self.ask(methods.ConfirmSelect(), methods.ConfirmSelectOk, nothing)
        elif self.is_transactional:
            self.ask(methods.TxSelect(), methods.TxSelectOk, nothing)

    def published(self, copies: list[Copy]) -> None:
        """These are on their way; the next answer proves that they were heard."""
        self._unheard += copies

    def settling(self, copy: Copy) -> None:
        copy.fate = book.SETTLING
        self._unheard_settled.append(copy)

    # -- doing what the plan says ------------------------------------------------------------------

    def do(self, action: Action) -> None:
        self.todo.append(action)
        self.go_on()

    def go_on(self) -> None:
        while self.todo and self._expected is None and not self.is_leaving:
            action = self.todo[0]
            name = action.text("queue")
            if name and name not in self.declared and self._needs(self.schedule.queues[name], action.what):
                declaring.declare(self, self.schedule.queues[name])
                return
            self.todo.popleft()
            self._do(action)

    def _needs(self, queue: QueueBook, what: str) -> bool:
        """Whether the queue is to be declared first; who may not may publish all the same."""
        return what not in ("delete", "purge") and not (what == "publish" and queue.kind.exclusive and queue.exists)

    def _do(self, action: Action) -> None:
        queue = self.schedule.queues.get(action.text("queue"))
        if queue is not None and action.what in declaring.ACTIONS:
            declaring.ACTIONS[action.what](self, queue)
        elif action.what == "close-channel":
            self._close()
        else:
            part = self.publishing if action.what in ("publish", "commit", "rollback") else self.consuming
            getattr(part, "do_" + action.what)(action)

    # -- what the broker says ----------------------------------------------------------------------

    def on_method(self, method: Any, content: SimContent | None) -> None:
        kind = type(method)
        if kind is methods.BasicDeliver:
            assert content is not None
            self.consuming.on_deliver(method, content)
        elif kind in (methods.BasicAck, methods.BasicNack):
            self.publishing.on_confirm(method, kind is methods.BasicAck)
        elif kind is methods.BasicReturn:
            assert content is not None
            self.publishing.on_return(method, content)
        elif kind is methods.BasicCancel:
            self.tell(f"hears that {method.consumer_tag} is cancelled")
            self.consuming.cancelled(method.consumer_tag)
        elif kind is methods.ChannelClose:
            self._closed_by_broker(method)
        elif self._expected is not None and kind in self._expected[0]:
            _, then = self._expected
            self._expected = self._asked_of = None
            self.may_be_closed = False
            heard, settled = self._asked.pop()
            book.heard(heard)
            book.settled(settled, self)
            self.publishing.proven(heard)
            then(method, content)
            self.go_on()
        else:
            raise Broken(f"{self} got {kind.__name__}, which it had not asked for")

    # -- the end -----------------------------------------------------------------------------------

    def _close(self) -> None:
        self.tell("closes the channel")
        self.ask(
            methods.ChannelClose(200, "done"),
            methods.ChannelCloseOk,
            lambda method, content: self.client.channel_gone(self),
        )
        self.leave()

    def leave(self) -> None:
        """It was told to end, or is about to be ended by a crash: what it holds goes back, now or soon."""
        self.is_leaving = True
        self.todo.clear()
        self.consuming.abandon()

    def doom(self) -> None:
        """Its process in the broker crashes now; this end has yet to hear of it."""
        for copies in [
            *(heard for heard, _ in self._asked),
            self._unheard,
            *(message.copies for message in self.publishing.unconfirmed.values()),
        ]:
            book.unheard(copies)
        for settled in [*(settled for _, settled in self._asked), self._unheard_settled]:
            book.given_back(settled, self)
        self.leave()

    def waits_for(self) -> str:
        """What is still to come, if anything is."""
        if self._expected is not None:
            return f"{self} waits for {self._expected[0][0].__name__}"
        unconfirmed = self.publishing.unconfirmed
        return (
            f"{self} waits for confirms of {[message.number for message in unconfirmed.values()]}"
            if unconfirmed
            else ""
        )

    def ended(self, in_order: bool) -> None:
        """Nothing comes any more; `in_order`: the broker has heard all it was sent."""
        self.is_leaving = True
        for heard, settled in [*self._asked, (self._unheard, self._unheard_settled)]:
            if in_order:
                book.heard(heard)
                book.settled(settled, self)
            else:
                book.unheard(heard)
                book.given_back(settled, self)
        self.consuming.abandon()

    def _closed_by_broker(self, method: Any) -> None:
        self.tell(f"is closed by the broker: {method.reply_code} {method.reply_text}")
        queues = self.schedule.queues.values()
        is_missing = method.reply_code == 404 and any(queue.exists is not True or queue.deleted for queue in queues)
        is_refused = method.reply_code == 406 and "partial tx completion" in method.reply_text
        is_exclusive = self._asked_of is not None and self._asked_of.kind.exclusive
        is_locked_out = method.reply_code == 405 and (self.may_be_locked_out or is_exclusive and self.may_be_closed)
        if not (is_missing or is_refused or is_locked_out or self.schedule.has_crashed):
            raise Broken(f"{self} was closed for no reason: {method.reply_text}")
        self.send(methods.ChannelCloseOk())
        self.client.channel_gone(self, in_order=False)


def nothing(method: Any, content: SimContent | None) -> None:
    """The answer alone was waited for."""
