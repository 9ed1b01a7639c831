"""`Process`: the base class of all actors of the broker.

A message is a tuple `(name, *fields)` of plain picklable values. The process that receives it calls its handler
`on_<name>(sender, *fields)`. Other processes make the tuple with the receiver's contract (see `contract`), and either
send it or ask it. This is what a handler may do, and what becomes of the answer:

    the handler                       after `send`             after `ask`
    is plain and returns None         nothing more happens     the answer comes later: keep `sender`, call `reply`
    is plain and returns a value      the value is dropped     the value is the answer
    is async and returns anything     the value is dropped     the value is the answer, even None
    is a generator (see below)        as for the value that it returns, which may be a coroutine
    raises one of `reply_errors`      the process crashes      the error is raised at the asker's `await`
    raises anything else              the process crashes      the process crashes, the asker gets ProcessDown

The `sender` of an asked message is a `ReplyHandle`, and `sender.address` is the asker. `reply` and `reply_error` answer
once. They do nothing the second time, and nothing if the message was sent instead of asked, so that one handler serves
both.

A crash is logged once and ends the process and its children. Its parent gets `on_child_exited`, its monitors get
`on_down` with an `ExitReason` of the kind CRASH. The message is not retried. An orderly end has the reason NORMAL or
the one given to `stop`.

An async handler that waits does not hold up later messages. When the process ends, its coroutines are closed.

A handler whose work grows with something that a client chooses, and that must be done before the next message is
handled, is a **sliced handler**, a generator (`Slices`). Where it yields, its turn ends. In its next turns the process
goes on with this handler alone: it handles no message, resumes no coroutine and calls no `after_batch` until the
handler has returned. Its mailbox keeps the order of what arrives meanwhile. So other processes see the effects of one
long turn, but do not have to wait for it.

A process reaches the outside world (clock, timers, descriptors, threads) through its host alone: `cell.Cell` on an
event loop or in a simulation, `stock_host.StockHost` on Thespian's own system bases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator
from functools import partial
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, TypeVarTuple, Unpack

from thespian.actors import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    ActorSystemMessage,
    ChildActorExited,
    DeadEnvelope,
    PoisonMessage,
    WakeupMessage,
    WatchMessage,
)

from ..parted_table import SPLIT_AT, Growing, in_parts
from .contract import Address, Answer, C, Contract, ProcessMessage, Sender
from .coroutines import Pending, ReplyHandle, SlicedHandler, Slices, Task, TimerCall
from .errors import ProcessDown, ProcessError, ProcessTimeout, UnknownMessage
from .exit_reason import NORMAL, ExitKind, ExitReason
from .turn_work import END_OF_TURN, STEP

if TYPE_CHECKING:
    from .host import Host
    from .long_turn import LongTurnRecord
    from .machine.memory import Memory
    from .machine.sockets import Sockets
    from .system.local_names import IsExpected, Resolve
    from .system.meter import Meter

#: Handlers that the runtime calls by itself, most of them without a sender. No message has their names, so that no
#: process can forge ("exit",) or ("down", ...).
EVENTS = frozenset(
    "on_" + event
    for event in (
        "child_exited",
        "dead_letter",
        "down",
        "exit",
        "message",
        "overload",
        "poison",
        "readable",
        "round_end",
        "system_message",
        "timer",
        "unknown",
        "writable",
    )
)

if TYPE_CHECKING:
    #: A message of the runtime itself: an ask and its answer, an ask given up, a monitor, what a monitor reports, work
    #: that the host divides into turns, and a turn that a process gives itself on Thespian's own bases.
    OwnMessage = (
        tuple[Literal["ask"], Any, Any]
        | tuple[Literal["$answer"], Any, bool, Any]
        | tuple[Literal["$forget", "$monitor", "$demonitor"], Any]
        | tuple[Literal["$down"], Any, ExitReason]
        | tuple[Literal["$work"], Callable[[], None]]
        | tuple[Literal["$turn"]]
    )

Handler = Callable[..., Any]
#: A monitor: its name, and the process.
_Monitored = tuple[Hashable, ActorAddress]

#: Asks of `ask_each` that wait for their answers at a time. With more, the messages, answers and coroutines of all of
#: them are in memory together: 4,000 deletions of queues at once had the collector examine them for 35 ms.
ASKED_AT_ONCE = 512

Args = TypeVarTuple("Args")
Item = TypeVar("Item")
Value = TypeVar("Value")


class Process(Actor):
    """Base class of all processes. As in Thespian, `__init__` must not act: no sends, no timers.

    Processes that exist by the thousand (queues, channels) declare their attributes in `__slots__`. An object with more
    than thirty attributes keeps them in a hash table of its own, and when a thousand processes take turns, a turn would
    spend most of its time waiting for that table to come from memory.
    """

    __slots__ = ("_asked", "_asks", "_host", "_last_ref", "_monitor_refs", "_monitored", "_stop_reason", "_tasks")

    #: The messages that the process receives; `tests/architecture` checks that its handlers fit.
    contract: ClassVar[type[Contract]] = Contract

    #: The most messages that may wait in the mailbox; with more, the process is killed, and its parent gets
    #: `on_overload`.
    mailbox_limit: ClassVar[int] = 1_000_000

    #: The most messages that the process handles in one turn, and the most coroutines that it resumes. A process that
    #: takes long for a message sets a lower limit; the budget of the event loop may be lower still.
    turn_limit: ClassVar[int] = 64

    #: The payloads of timers that carry on with work in progress, such as a write that is put off for a moment. As long
    #: as one runs, the loop is busy; other timers are for things that may come later.
    work_timers: ClassVar[tuple[str, ...]] = ()

    #: Errors that a handler may answer an ask with; any other error is a crash.
    reply_errors: tuple[type[BaseException], ...] = (ProcessError,)

    _handlers: ClassVar[dict[str, Handler]] = {}
    _slots: ClassVar[tuple[str, ...]] = ()
    #: Set by `_attach`: when an event loop creates the process, or before its first message on Thespian's own bases.
    _host: Host
    _stop_reason: ExitReason | None
    #: The number of each monitor by its name, and each monitor by its number.
    _monitor_refs: Growing[Hashable, int]
    _monitored: Growing[int, _Monitored]

    if TYPE_CHECKING:
        myAddress: Address[Any]

        def send(self, address: Address[C], message: ProcessMessage[C, Any] | OwnMessage) -> None:
            """Put `message`, made by the contract of the process at `address`, into that process's mailbox."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._handlers = _handlers_of(cls)
        cls._slots = tuple(name for base in cls.__mro__ for name in base.__dict__.get("__slots__", ()))

    # -- children that are created when they are needed --------------------------------------------

    def create_dormant(self, process_class: type[Process], first: ProcessMessage[C, Any], name: Hashable) -> Address[C]:
        """Return the address of a child that the first message to it will create (see `dormant`).

        The child handles `first` before that message. From its creation on, this process monitors it under `name`. On
        Thespian's own bases the child is created at once.
        """
        address: Address[C] = self._host.create_dormant(process_class, first, name)
        return address

    def is_dormant(self, address: ActorAddress) -> bool:
        """Whether the child that `create_dormant` returned this address for has not been created yet."""
        return self._host.is_dormant(address)

    def has_no_work(self, address: ActorAddress) -> bool:
        """Whether the process at `address` runs in this system, and has no message to handle and nothing to go on with.

        What is read of it now is what it would answer to a question. On Thespian's own bases this is always False.
        """
        return self._host.has_no_work(address)

    # -- events that a subclass may handle ---------------------------------------------------------

    def after_batch(self) -> None:
        """A turn has handled one or more messages: send here what they gathered."""

    def on_round_end(self) -> None:
        """The round in which the process called `call_at_round_end` is over."""

    def on_exit(self) -> None:
        """The process is ending, for whatever reason: close here what it owns. Must not wait."""

    def free_memory(self) -> bool:
        """The process has ended: free a part of what it has in memory, in 1 ms. Return whether there was any to free.

        For processes that may have so much that freeing it at once would hold up others.
        """
        return False

    def on_child_exited(self, address: ActorAddress) -> Any:
        """A child and all its descendants have ended."""

    def on_down(self, name: Any, reason: ExitReason) -> Any:
        """The process monitored as `name` has ended, or had ended before it was monitored (`reason.is_noproc`)."""

    def on_timer(self, payload: Any) -> Any:
        """A timer of `start_timer` or `wakeupAfter` is due. Called with `payload` as it was given there."""

    def on_readable(self, fd: int) -> Any:
        """The watched descriptor `fd` has input, has reached its end of file, or has an error."""

    def on_writable(self, fd: int) -> Any:
        """The watched descriptor `fd` accepts output, or has an error."""

    def on_dead_letter(self, address: ActorAddress, message: Any) -> Any:
        """`message` went to `address`, where no process lives. Only the process of `handleDeadLetters` gets this."""

    def on_overload(self, address: ActorAddress) -> Any:
        """The child at `address` exceeded its `mailbox_limit` and is killed."""

    def on_poison(self, address: ActorAddress, message: Any) -> Any:
        """The plain Thespian actor at `address` failed twice to handle `message`, which this process had sent."""

    def on_message(self, sender: ActorAddress | ReplyHandle, message: Any) -> Any:
        """A message is neither a tuple nor one of Thespian's own."""
        return self.on_unknown(sender, message)

    def on_system_message(self, sender: ActorAddress, message: ActorSystemMessage) -> Any:
        """A message is one of Thespian's own and has no event of its own here."""

    def on_unknown(self, sender: ActorAddress | ReplyHandle, message: Any) -> Any:
        """The process has no handler for `message`. An asker gets `UnknownMessage`; otherwise the process crashes."""
        raise UnknownMessage(f"{type(self).__name__} has no handler for {_kind(message)}")

    # -- asking and answering ----------------------------------------------------------------------

    def ask(
        self, address: Address[C], message: ProcessMessage[C, Answer], timeout: float | None = None
    ) -> Awaitable[Answer]:
        """Send `message` now and return an awaitable for its answer.

        The `await` raises the error that the process at `address` answered with, ProcessDown if that process ends (or
        had ended) without an answer, or ProcessTimeout after `timeout` seconds. On Thespian's own bases only the
        timeout detects a process that had ended before the message arrived.
        """
        ref = self._new_ref()
        self.send(address, ("ask", ref, message))
        pending = self._asks[ref] = Pending(address)
        if timeout is not None:
            pending.timer = self._host.start_timer(timeout, TimerCall(partial(self._ask_timed_out, ref)))
        return pending

    async def ask_each(
        self, asks: Iterable[tuple[Address[C], ProcessMessage[C, Answer]]], timeout: float | None = None
    ) -> list[Answer | Exception]:
        """Ask any number of processes, `STEP` of them in a turn, and return their answers in the order of `asks`.

        At most `ASKED_AT_ONCE` of the asks wait for their answers at a time. An ask that failed has its error instead
        of an answer: ProcessDown, ProcessTimeout, or that of the process.
        """
        pending: deque[Awaitable[Answer]] = deque()
        answers: list[Answer | Exception] = []

        async def take_oldest() -> None:
            try:
                answers.append(await pending.popleft())
            except Exception as error:
                answers.append(error.with_traceback(None))
            if len(answers) % STEP == 0:
                await self.next_turn()

        for address, message in asks:
            if len(pending) == ASKED_AT_ONCE:
                await take_oldest()
            pending.append(self.ask(address, message, timeout))
            if len(pending) % STEP == 0 and not answers:
                await self.next_turn()
        while pending:
            await take_oldest()
        return answers

    async def in_steps(self, function: Callable[[Item], Value], items: Iterable[Item]) -> list[Value]:
        """Call `function` for each of any number of items, `STEP` of them in a turn, and return the values."""
        values: list[Value] = []
        for item in items:
            values.append(function(item))
            if len(values) % STEP == 0:
                await self.next_turn()
        return values

    def reply(self, sender: Sender, value: Any) -> None:
        """Answer the ask of `sender`. Does nothing if the message was not asked, or the ask is answered already."""
        if type(sender) is ReplyHandle and self._asked.pop(sender.key, None) is not None:
            if not self._asked:
                self._asked.clear()  # an empty dict keeps its table of 168 bytes until it is cleared
            self.send(sender.address, ("$answer", sender.ref, True, value))

    def reply_error(self, sender: Sender, error: BaseException) -> None:
        """Answer the ask of `sender` with an error, which its `await` raises; otherwise like `reply`."""
        if type(sender) is ReplyHandle and self._asked.pop(sender.key, None) is not None:
            # The traceback is left out, because its frames cannot be pickled and would keep their objects alive.
            self.send(sender.address, ("$answer", sender.ref, False, error.with_traceback(None)))

    def request_exit(self, address: Address[Any]) -> None:
        """Ask the process at `address` to end after the messages that wait in its mailbox now."""
        self.send(address, ActorExitRequest())

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Start `coroutine` in this process and run it up to its first wait. An error that it raises is a crash."""
        self._start(coroutine, None)

    def run_blocking(self, function: Callable[[Unpack[Args]], Value], *args: *Args) -> Awaitable[Value]:
        """Run `function(*args)` in another thread and return an awaitable for its value; its error is raised there.

        The function must not touch the process. On Thespian's own bases it runs here and now.
        """
        ref = self._new_ref()
        pending = self._asks[ref] = Pending(None)
        self._host.run_blocking(ref, function, args)
        return pending

    def run_brief(self, function: Callable[[Unpack[Args]], Value], *args: *Args) -> Awaitable[Value]:
        """As `run_blocking`, for a call that takes microseconds, and that thousands of processes make at once.

        Such calls run one after the other in one thread, and their answers come together. With a hop to a thread for
        each, ten thousand calls of 10 µs take seconds, in which the threads hand the interpreter to each other.
        """
        ref = self._new_ref()
        pending = self._asks[ref] = Pending(None)
        self._host.run_blocking(ref, function, args, True)
        return pending

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Return an awaitable that ends after `seconds`. Other messages are handled meanwhile."""
        ref = self._new_ref()
        pending = self._asks[ref] = Pending(None)
        self._host.start_timer(seconds, TimerCall(partial(self._answer, self.myAddress, ref, True, None)))
        return pending

    def next_turn(self) -> Awaitable[None]:
        """Return an awaitable that ends in the next turn of this process, after the turns of others that are ready now.

        Work in proportion to something that a client chooses is done in steps with such a wait between them.
        """
        pending = Pending(None)
        self._host.resume_later(pending)
        return pending

    def request_turn(self) -> None:
        """Take another turn behind those of others, even if no message has come: `after_batch` is called then."""
        self._host.resume_later(None)

    def call_at_round_end(self) -> None:
        """Have `on_round_end` called when every process that is ready now has had its turn.

        So what many processes give this one in a round, such as output for one connection, can leave as one. Where the
        system has no rounds, as in a simulation, the process has another turn instead, and `after_batch` is called.
        """
        self._host.call_at_round_end()

    # -- processes on other nodes ------------------------------------------------------------------

    def register(self, name: str, address: Address[Any] | None = None) -> None:
        """Let processes of other nodes reach this process, or the one at `address`, by `name` (see `local_names`)."""
        self._host.names.register(name, self.myAddress if address is None else address)

    def register_family(self, family: str, resolve: Resolve, is_expected: IsExpected | None = None) -> None:
        """Let `resolve` find the process for each name that begins with `<family>/`, from the rest of the name.

        While a name has no process and `is_expected` returns True for it, messages to it are held until `release_held`.
        """
        self._host.names.register_family(family, resolve, self.myAddress, is_expected)

    def release_held(self, name: str | None = None) -> None:
        """Deliver the messages that were held for `name`, or for all names that are not expected any more, to the
        processes that have these names now. Messages for a name that no process has are undeliverable.
        """
        self._host.release_held(name)

    def named_address(self, node: str, name: str) -> Address[Any] | None:
        """The address of the process that is registered as `name` on the node `node`, which may be this one.

        None if that node is not connected now; on this node, if there is no such process. An address is that of the run
        of the node that is connected now: after the node has restarted, messages to it reach no process.
        """
        address: Address[Any] | None = self._host.named_address(node, name)
        return address

    def set_applied(self, index: int) -> None:
        """Note that this system has applied everything up to `index` of the log that all systems share.

        A connection to another system sends the index with its messages, and the other system does not hand them out
        before it has applied the log that far. So a process there has seen every change that the sender can have seen.
        """
        self._host.systems.set_applied(index)

    def begin_applying(self, index: int) -> None:
        """Note that this system has applied a part of what stands at `index` of the log that all systems share.

        What is sent from now on carries that index, and what comes with it waits until `set_applied`.
        """
        self._host.systems.shown = index

    @property
    def applied_index(self) -> int:
        """Up to where this system has applied the log that all systems share: see `set_applied`."""
        return self._host.systems.applied

    # -- monitors, timers, descriptors, clock ------------------------------------------------------

    def monitor(self, address: ActorAddress, name: Hashable) -> None:
        """Have `on_down(name, reason)` called once when the process at `address` ends, or soon if it has ended already.

        A second monitor with the same name replaces the first.
        """
        self.demonitor(name)
        ref = self._new_ref()
        # Call the host first, because it raises an error if `address` is no address. A process that ends removes the
        # monitors that are noted below, and an error at that point would end the whole system.
        self._host.monitor(address, ref)
        self._monitor_refs[name] = ref
        self._monitored[ref] = (name, address)
        if len(self._monitored) == SPLIT_AT:
            self._monitor_refs, self._monitored = in_parts(self._monitor_refs), in_parts(self._monitored)

    def demonitor(self, name: Hashable) -> None:
        """Stop monitoring: no `on_down` for `name` is called after this. Unknown names are ignored."""
        ref = self._monitor_refs.pop(name, None)
        if ref is not None:
            _, address = self._monitored[ref]
            del self._monitored[ref]
            self._host.demonitor(address, ref)

    def start_timer(self, seconds: float, payload: Any = None) -> int:
        """Have `on_timer(payload)` called once after `seconds`. Returns the number that `cancel_timer` takes."""
        return self._host.start_timer(seconds, payload)

    def cancel_timer(self, ref: int) -> None:
        """Cancel a timer, even if it is due and waits in the mailbox. One that has fired or is unknown is ignored."""
        self._host.cancel_timer(ref)

    def now(self) -> float:
        """Seconds of a monotonic clock."""
        return self._host.now()

    def wall_clock(self) -> float:
        """Seconds since the epoch."""
        return self._host.wall_clock()

    def clocks(self) -> tuple[Callable[[], float], Callable[[], float]]:
        """What `now` and `wall_clock` call, for parts of a process that read a clock in every turn."""
        return self._host.clocks()

    def random_bytes(self, count: int) -> bytes:
        """`count` unpredictable bytes."""
        return self._host.random_bytes(count)

    @property
    def label(self) -> str:
        """What the process stands for, as operators read it, such as a queue's name; empty if the name of its class is
        enough.
        """
        return ""

    @property
    def sockets(self) -> Sockets:
        """The network of the machine that the process runs on."""
        return self._host.sockets

    @property
    def machine_memory(self) -> Memory:
        """The memory of the machine that the process runs on."""
        return self._host.memory

    def longest_turns(self) -> list[LongTurnRecord]:
        """The longest turns of all processes of this loop, the longest one first."""
        return self._host.longest_turns()

    def meter(self) -> Meter | None:
        """Measure from now on what all processes of this loop do; None on a system that cannot. Close it in the end."""
        return self._host.meter()

    def mailboxes(self) -> Iterator[tuple[str, int]]:
        """The class of each process of this loop that waits for its turn now, and how many messages it has.

        The iterator must be used up, or dropped, within the turn. It is empty on a system that cannot tell.
        """
        return self._host.mailboxes()

    def watch(self, fd: int, read: bool = True, write: bool = False) -> None:
        """Call `on_readable` while `fd` is readable if `read`, `on_writable` while it is writable if `write`.

        This replaces what was watched for `fd` before; False for both stops.
        """
        self._host.watch(fd, read, write)

    def unwatch(self, fd: int) -> None:
        """Stop watching `fd`; call it before the descriptor is closed. Does nothing if `fd` is not watched."""
        self._host.unwatch(fd)

    def share_turns(self, group: str) -> None:
        """Share the turns of one client with all processes of `group`. An empty `group` ends the sharing.

        For processes that watch descriptors and may come by the thousand at once.
        """
        self._host.share_turns(group)

    def stop(self, reason: str | ExitReason = NORMAL) -> None:
        """End this process when the current handler and then `after_batch` have returned.

        Messages that still wait are undeliverable. Of several calls the first one gives the reason; a text means an
        orderly end.
        """
        if self._stop_reason is None:
            self._stop_reason = ExitReason(ExitKind.ORDERLY, reason) if isinstance(reason, str) else reason

    # -- the machinery -----------------------------------------------------------------------------

    def receiveMessage(self, msg: Any, sender: ActorAddress) -> Any:
        """Take one message; called by Thespian's own bases. An event loop calls the handlers directly."""
        if not hasattr(self, "_host"):
            from .stock_host import StockHost

            self._attach(StockHost(self))
        return self._host.receive(msg, sender)

    def _attach(self, host: Host) -> None:
        self._host = host
        self._last_ref = 0
        self._stop_reason = None
        #: Asks and blocking calls of this process that have no answer yet, by their number.
        self._asks: dict[int, Pending] = {}
        #: Asks of other processes that this one has not answered yet.
        self._asked: dict[tuple[str, Any], ReplyHandle] = {}
        #: Coroutines that wait, as the keys of a dict, so that a simulation closes them in the same order every time.
        self._tasks: dict[Task, None] = {}
        self._monitor_refs = {}
        self._monitored = {}

    def _new_ref(self) -> int:
        self._last_ref += 1
        return self._last_ref

    def _dispatch(self, sender: Any, message: Any) -> None:
        """Handle one message of any kind. `ActorBase.turn` has the branch for tuples inlined."""
        if type(message) is tuple and message:
            handler = self._handlers.get(message[0])
            if handler is None:
                result = self.on_unknown(sender, message)
            else:
                result = handler(self, sender, *message[1:])
        elif isinstance(message, ActorSystemMessage):
            result = self._system_message(sender, message)
        else:
            result = self.on_message(sender, message)
        if result is not None:
            self._returned(result, sender)

    def _system_message(self, sender: ActorAddress, message: ActorSystemMessage) -> Any:
        if isinstance(message, ChildActorExited):
            return self.on_child_exited(message.childAddress)
        if isinstance(message, WakeupMessage):
            return self.on_timer(message.payload)
        if isinstance(message, DeadEnvelope):
            return self.on_dead_letter(message.deadAddress, message.deadMessage)
        if isinstance(message, PoisonMessage):
            return self.on_poison(sender, message.poisonMessage)
        if isinstance(message, WatchMessage):
            for fd in message.ready:
                self._returned(self.on_readable(fd), None)
            return None
        return self.on_system_message(sender, message)

    def _returned(self, result: Any, sender: Any) -> None:
        """Use what a handler returned: start a coroutine, do the first slice of a generator, or answer the ask."""
        if type(result) is CoroutineType:
            self._start(result, sender if type(sender) is ReplyHandle else None)
        elif type(result) is GeneratorType:
            self._next_slice(SlicedHandler(result, sender))
        elif result is not None and type(result) is not SlicedHandler:
            self.reply(sender, result)

    def _next_slice(self, sliced: SlicedHandler) -> None:
        """Do one slice of a handler. The host gives the process a turn for the next one, if there is any."""
        try:
            next(sliced.generator)
        except StopIteration as stop:
            self._host.sliced = None
            self._returned(stop.value, sliced.sender)
        except BaseException as error:
            self._host.sliced = None
            if type(sliced.sender) is not ReplyHandle or not isinstance(error, self.reply_errors):
                raise
            self.reply_error(sliced.sender, error)
        else:
            self._host.do_in_slices(sliced)

    def _start(self, coroutine: Coroutine[Any, Any, Any], handle: ReplyHandle | None) -> None:
        task = Task(coroutine, handle)
        self._tasks[task] = None
        self._step(task)

    def _step(self, task: Task) -> None:
        """Run the coroutine of `task` up to its next wait."""
        try:
            awaited = task.coroutine.send(None)
        except StopIteration as stop:
            del self._tasks[task]
            if not self._tasks:
                self._tasks.clear()  # frees its table, as in `reply`
            if task.handle is not None:
                self.reply(task.handle, stop.value)
        except BaseException as error:
            del self._tasks[task]
            if task.handle is None or not isinstance(error, self.reply_errors):
                raise
            self.reply_error(task.handle, error)
        else:
            if type(awaited) is not Pending or awaited.task is not None:
                raise TypeError("a process awaits what its own ask, run_blocking or signal returned, each only once")
            awaited.task = task

    def _asked_message(self, sender: ActorAddress, ref: Any, message: Any) -> SlicedHandler | None:
        handle = ReplyHandle(sender, ref)
        self._asked[handle.key] = handle
        try:
            self._dispatch(handle, message)
        except self.reply_errors as error:
            self.reply_error(handle, error)
        return self._host.sliced  # the turn must notice a handler that goes on in another turn

    def _answer(self, sender: ActorAddress, ref: int, ok: bool, value: Any) -> None:
        pending = self._asks.pop(ref, None)
        if pending is None:
            return  # the answer came after the timeout
        if pending.timer is not None:
            self._host.cancel_timer(pending.timer)
        self._resume(pending, ok, value)

    def _resume(self, pending: Pending, ok: bool = True, value: Any = None) -> None:
        """Let the coroutine that awaits `pending` go on with this value or error."""
        pending.settle(ok, value)
        if pending.task is not None:
            self._step(pending.task)

    def _forget(self, sender: ActorAddress, ref: Any) -> None:
        """Forget an ask whose asker no longer waits for the answer."""
        self._asked.pop((sender.actorAddressString, ref), None)

    def _timer_due(self, sender: ActorAddress, ref: int) -> Any:
        found = self._host.take_timer(ref)
        if found is None:
            return None
        payload = found[0]
        return payload.call() if type(payload) is TimerCall else self.on_timer(payload)

    def _ask_timed_out(self, ref: int) -> None:
        pending = self._asks.get(ref)
        if pending is not None:
            pending.timer = None
            if pending.target is not None:
                self.send(pending.target, ("$forget", ref))
            self._answer(self.myAddress, ref, False, ProcessTimeout("no answer in the time allowed"))

    def _down(self, sender: ActorAddress, ref: int, reason: ExitReason) -> Any:
        found = self._monitored.pop(ref, None)
        if found is None:
            return None
        name, _ = found
        del self._monitor_refs[name]
        return self.on_down(name, reason)

    def _monitor_request(self, sender: ActorAddress, ref: Any) -> None:
        self._host.add_monitor(sender, ref)

    def _demonitor_request(self, sender: ActorAddress, ref: Any) -> None:
        self._host.remove_monitor(sender, ref)

    def _do_work(self, sender: ActorAddress, work: Callable[[], None]) -> Slices[None]:
        """Do a part of what the host could not do in one turn, and nothing else in this turn."""
        work()
        yield

    def _overloaded(self, sender: ActorAddress, address: ActorAddress) -> Any:
        return self.on_overload(address)

    def _close(self) -> None:
        """Close what the process owns, at once. The host calls this when the process ends, and no handler after it."""
        try:
            self.on_exit()
        except Exception:
            self._host.log.exception("%s failed in on_exit", self.myAddress)

    # The two generators below do the end of the process in steps, and yield how much work each step was
    # (`END_OF_TURN`).

    def _end_conversations(self, reason: ExitReason) -> Iterator[int]:
        """Close the coroutines, give each asker ProcessDown, and give up the asks and the monitors of this process."""
        tasks = list(self._tasks)
        self._tasks.clear()
        for task in tasks:
            try:
                task.close()
            except Exception:
                self._host.log.exception("%s failed to close a coroutine", self.myAddress)
            yield 1
        for handle in list(self._asked.values()):
            self.reply_error(handle, ProcessDown(reason))
            yield 1
        while self._asks:
            ref, pending = self._asks.popitem()
            if pending.target is not None:
                self.send(pending.target, ("$forget", ref))
            yield 1
        while self._monitored:
            ref, (_, address) = self._monitored.popitem()
            self._host.demonitor(address, ref)
            yield 1

    def _let_go(self) -> Iterator[int]:
        """Free what the process has in memory, after everything else.

        The parts of a process refer to each other and back to it, so that reference counting alone frees none of them.
        A queue's messages would stay in memory until the collector examines its oldest generation, which depends on the
        number of objects and not on their size.
        """
        try:
            while self.free_memory():
                yield END_OF_TURN
        except Exception:
            # Its state may be in disorder, because it has crashed. The rest is freed all at once.
            self._host.log.exception("%s failed in free_memory", self.myAddress)
        self._delete_attributes()

    def _delete_attributes(self) -> None:
        self.__dict__.clear()
        for name in self._slots:
            if hasattr(self, name):
                delattr(self, name)


#: Messages that the runtime itself sends between processes, and their handlers. No `on_` method can have a name with
#: `$`.
_PROTOCOL: dict[str, Handler] = {
    "ask": Process._asked_message,
    "$answer": Process._answer,
    "$forget": Process._forget,
    "$timer": Process._timer_due,
    "$monitor": Process._monitor_request,
    "$demonitor": Process._demonitor_request,
    "$down": Process._down,
    "$work": Process._do_work,
    "$overload": Process._overloaded,
}


def _handlers_of(cls: type) -> dict[str, Handler]:
    handlers = dict(_PROTOCOL)
    for attribute in dir(cls):
        if attribute.startswith("on_") and attribute not in EVENTS:
            if attribute[3:] in _PROTOCOL:
                raise TypeError(f"{cls.__name__}.{attribute}: messages of that name are the runtime's own")
            handlers[attribute[3:]] = getattr(cls, attribute)
    return handlers


Process._handlers = _handlers_of(Process)


def _kind(message: Any) -> str:
    """The name and size of a message, for a log, which must not show its fields."""
    if type(message) is tuple and message:
        return f"({message[0]!r}, ...) of {len(message)}"
    return type(message).__name__
