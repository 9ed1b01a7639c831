"""`Process`: the actor class everything above is written with.

A message is a tuple `(name, *fields)` of plain picklable values and is handled by
`on_<name>(sender, *fields)`. What a handler may be, and when an asker gets its answer:

    handler                          told (send)            asked (ask)
    plain, returns None              done                   no answer yet: keep `sender`, `reply` later
    plain, returns a value           value is dropped       the value is the answer
    async, returns anything          value is dropped       the value is the answer, even None
    raises one of `reply_errors`     crash                  the error is raised at the asker's await
    raises anything else             crash                  crash; the asker gets ProcessDown

While asked, `sender` is a `ReplyHandle`, and `sender.address` the asker. `reply` and `reply_error` answer once;
to a plain address (the handler was told, not asked) or a second time they do nothing, so one handler serves both.

A crash is logged once, ends the process and its children, and is reported to its parent (`on_child_exited`) and to
its monitors (`on_down`, with an `ExitReason` of the kind CRASH). Nothing is retried. An orderly end has the reason
NORMAL or the one given to `stop`.

An async handler that waits does not hold up later messages. When the process ends its coroutines are closed.

What the process needs of the system it lives on (clock, timers, descriptors, threads) comes from its host:
`cell.Cell` on an event loop, `stock_host.StockHost` on Thespian's own system bases.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, overload

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

from .contract import Address, Answer, C, Message, Sender
from .coroutines import Pending, ReplyHandle, Task
from .errors import ProcessDown, ProcessError, ProcessTimeout, UnknownMessage
from .exit_reason import NORMAL, ExitKind, ExitReason

if TYPE_CHECKING:
    from .host import Host
    from .machine.memory import Memory
    from .machine.sockets import Sockets

# Events have no sender and never arrive as a tuple: nobody can forge ('exit',) or ('down', ...).
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
        "system_message",
        "timer",
        "unknown",
        "writable",
    )
)

Handler = Callable[..., Any]


class _AskTimeout:
    """Timer payload: the ask `ref` has waited long enough."""

    __slots__ = ("ref",)

    def __init__(self, ref: int) -> None:
        self.ref = ref


class _SleepOver:
    """Timer payload: the coroutine that awaits `sleep` number `ref` goes on."""

    __slots__ = ("ref",)

    def __init__(self, ref: int) -> None:
        self.ref = ref


class Process(Actor):
    """Base class of all processes. `__init__` may not act (no send, no timer), as in Thespian.

    Those of which there are thousands name what they own in `__slots__`: with more than thirty attributes an object keeps them in a hash table of its own, and a
    turn that comes while another thousand had theirs spends most of its time waiting for memory.
    """

    __slots__ = ("_asked", "_asks", "_host", "_last_ref", "_monitor_refs", "_monitored", "_stop_reason", "_tasks")

    mailbox_limit: ClassVar[int] = 1_000_000
    """Most messages that may wait. Beyond it the process is killed and its parent's `on_overload` called."""

    reply_errors: tuple[type[BaseException], ...] = (ProcessError,)
    """Errors that a handler of an asked message may answer with; everything else is a crash."""

    _handlers: ClassVar[dict[str, Handler]] = {}
    _slots: ClassVar[tuple[str, ...]] = ()
    _host: Host  # none before the first message or the system's welcome
    _stop_reason: ExitReason | None

    if TYPE_CHECKING:
        myAddress: Address[Any]

        def send(self, address: Address[C], message: Message[C, Any] | tuple[Any, ...]) -> None:
            """Thespian's `send`, for messages made by the contract of the process at `address`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._handlers = _handlers_of(cls)
        cls._slots = tuple(name for base in cls.__mro__ for name in base.__dict__.get("__slots__", ()))

    # -- what a subclass may override --------------------------------------------------------------

    def after_batch(self) -> None:
        """Called once after one or more messages were handled in a turn: flush here what they gathered."""

    def on_exit(self) -> None:
        """The process is ending, for whatever reason: close what it owns. Must not wait."""

    def on_child_exited(self, address: ActorAddress) -> Any:
        """A child and all its descendants have ended."""

    def on_down(self, name: Any, reason: ExitReason) -> Any:
        """The process monitored as `name` has ended, or had ended before it was monitored (`reason.is_noproc`)."""

    def on_timer(self, payload: Any) -> Any:
        """A timer of `start_timer` or `wakeupAfter` is due."""

    def on_readable(self, fd: int) -> Any:
        """A watched descriptor has input, end of file or an error."""

    def on_writable(self, fd: int) -> Any:
        """A watched descriptor takes output again (or has an error)."""

    def on_dead_letter(self, address: ActorAddress, message: Any) -> Any:
        """A message to `address` found nobody; only for the process registered by `handleDeadLetters`."""

    def on_overload(self, address: ActorAddress) -> Any:
        """Child `address` exceeded its `mailbox_limit` and is being killed."""

    def on_poison(self, address: ActorAddress, message: Any) -> Any:
        """A plain Thespian actor failed twice on `message` of ours."""

    def on_message(self, sender: ActorAddress | ReplyHandle, message: Any) -> Any:
        """Any message that is not a tuple and not one of Thespian's own."""
        return self.on_unknown(sender, message)

    def on_system_message(self, sender: ActorAddress, message: ActorSystemMessage) -> Any:
        """One of Thespian's own messages that has no event here."""

    def on_unknown(self, sender: ActorAddress | ReplyHandle, message: Any) -> Any:
        """No handler for `message`. A crash if told; asked, the asker gets `UnknownMessage`."""
        raise UnknownMessage(f"{type(self).__name__} has no handler for {_kind(message)}")

    # -- asking and answering ----------------------------------------------------------------------

    @overload
    def ask(
        self, address: Address[C], message: Message[C, Answer], timeout: float | None = None
    ) -> Awaitable[Answer]: ...

    @overload
    def ask(self, address: Any, message: tuple[Any, ...], timeout: float | None = None) -> Awaitable[Any]: ...

    def ask(self, address: Any, message: Any, timeout: float | None = None) -> Awaitable[Any]:
        """Send `message` now and return what `await` waits for: the answer.

        At the `await`: ProcessDown if the target ends (or had ended) without answering, ProcessTimeout after
        `timeout` seconds, or the error it answered with. On Thespian's own bases a target that was dead
        before the message arrived is noticed by the timeout alone.
        """
        ref = self._new_ref()
        self.send(address, ("ask", ref, message))
        pending = self._asks[ref] = Pending(address)
        if timeout is not None:
            pending.timer = self._host.start_timer(timeout, _AskTimeout(ref))
        return pending

    def reply(self, sender: Sender, value: Any) -> None:
        """Answer the ask that `sender` came with. Does nothing if told instead of asked, or answered already."""
        if type(sender) is ReplyHandle and self._asked.pop(sender.key, None) is not None:
            self.send(sender.address, ("$answer", sender.ref, True, value))

    def reply_error(self, sender: Sender, error: BaseException) -> None:
        """Answer with an error, which is raised at the asker; otherwise as `reply`."""
        if type(sender) is ReplyHandle and self._asked.pop(sender.key, None) is not None:
            # Without its traceback: frames neither pickle nor should live on in the asker.
            self.send(sender.address, ("$answer", sender.ref, False, error.with_traceback(None)))

    def request_exit(self, address: Address[Any]) -> None:
        """Ask the process at `address` to end once it has handled the messages that wait before this request."""
        self.send(address, ActorExitRequest())

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run `coroutine` inside this process, at once up to its first wait. An error from it is a crash."""
        self._start(coroutine, None)

    def run_blocking(self, function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
        """Run `function(*args)` in a thread and return what `await` waits for: its value, or its error raised.

        It must touch nothing of the process. On Thespian's own bases it runs here and now.
        """
        ref = self._new_ref()
        pending = self._asks[ref] = Pending(None)
        self._host.run_blocking(ref, function, args)
        return pending

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Return what `await` waits for: `seconds` to pass. Other messages are handled meanwhile."""
        ref = self._new_ref()
        pending = self._asks[ref] = Pending(None)
        self._host.start_timer(seconds, _SleepOver(ref))
        return pending

    # -- monitors, timers, descriptors, clock ------------------------------------------------------

    def monitor(self, address: ActorAddress, name: Hashable) -> None:
        """Have `on_down(name, reason)` called once when `address` ends; at once, as a message, if it is dead.

        One monitor a name: another one with the same name replaces it.
        """
        self.demonitor(name)
        ref = self._new_ref()
        self._monitor_refs[name] = ref
        self._monitored[ref] = (name, address)
        self._host.monitor(address, ref)

    def demonitor(self, name: Hashable) -> None:
        """Stop; no `on_down` for `name` comes after this. Unknown names are ignored."""
        ref = self._monitor_refs.pop(name, None)
        if ref is not None:
            _, address = self._monitored.pop(ref)
            self._host.demonitor(address, ref)

    def start_timer(self, seconds: float, payload: Any = None) -> int:
        """Call `on_timer(payload)` once after `seconds`; the number returned is for `cancel_timer`."""
        return self._host.start_timer(seconds, payload)

    def cancel_timer(self, ref: int) -> None:
        """No `on_timer` for it comes after this, even if it was due. Fired or unknown ones are ignored."""
        self._host.cancel_timer(ref)

    def now(self) -> float:
        """Monotonic seconds."""
        return self._host.now()

    def wall_clock(self) -> float:
        """Seconds since the epoch."""
        return self._host.wall_clock()

    def random_bytes(self, count: int) -> bytes:
        return self._host.random_bytes(count)

    @property
    def sockets(self) -> Sockets:
        """The network, see `sockets`."""
        return self._host.sockets

    @property
    def machine_memory(self) -> Memory:
        """The memory of the machine that the process runs on."""
        return self._host.memory

    def watch(self, fd: int, read: bool = True, write: bool = False) -> None:
        """Watch `fd`, level triggered, for exactly these from now on; both False stops."""
        self._host.watch(fd, read, write)

    def unwatch(self, fd: int) -> None:
        """Stop watching `fd`. Call it before closing the descriptor. Not watched: nothing happens."""
        self._host.unwatch(fd)

    def stop(self, reason: str | ExitReason = NORMAL) -> None:
        """End this process when the current handler (and then `after_batch`) has returned.

        Messages still waiting are undeliverable. The first reason given counts; a text makes an orderly end.
        """
        if self._stop_reason is None:
            self._stop_reason = ExitReason(ExitKind.ORDERLY, reason) if isinstance(reason, str) else reason

    # -- the machinery -----------------------------------------------------------------------------

    def receiveMessage(self, msg: Any, sender: ActorAddress) -> Any:
        """The way in on Thespian's own bases. An event loop dispatches by itself."""
        if not hasattr(self, "_host"):
            from .stock_host import StockHost

            self._attach(StockHost(self))
        return self._host.receive(msg, sender)

    def _attach(self, host: Host) -> None:
        self._host = host
        self._last_ref = 0
        self._stop_reason = None
        self._asks: dict[int, Pending] = {}  # what we wait for
        self._asked: dict[tuple[str, Any], ReplyHandle] = {}  # what others wait for
        self._tasks: dict[Task, None] = {}  # ordered, so that a simulation closes them in the same order
        self._monitor_refs: dict[Hashable, int] = {}
        self._monitored: dict[int, tuple[Hashable, ActorAddress]] = {}

    def _new_ref(self) -> int:
        self._last_ref += 1
        return self._last_ref

    def _dispatch(self, sender: Any, message: Any) -> None:
        """One message of any kind. The event loop's turn has the tuple branch inlined."""
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
        """A handler returned something: a coroutine to run, or the answer if it was asked."""
        if type(result) is CoroutineType:
            self._start(result, sender if type(sender) is ReplyHandle else None)
        elif result is not None:
            self.reply(sender, result)

    def _start(self, coroutine: Coroutine[Any, Any, Any], handle: ReplyHandle | None) -> None:
        task = Task(coroutine, handle)
        self._tasks[task] = None
        self._step(task)

    def _step(self, task: Task) -> None:
        """Run `task` up to its next wait."""
        try:
            awaited = task.coroutine.send(None)
        except StopIteration as stop:
            del self._tasks[task]
            if task.handle is not None:
                self.reply(task.handle, stop.value)
        except BaseException as error:
            del self._tasks[task]
            if task.handle is None or not isinstance(error, self.reply_errors):
                raise
            self.reply_error(task.handle, error)
        else:
            if type(awaited) is not Pending or awaited.task is not None:
                raise TypeError("a process awaits what its own ask or run_blocking returned, and each only once")
            awaited.task = task

    def _asked_message(self, sender: ActorAddress, ref: Any, message: Any) -> None:
        handle = ReplyHandle(sender, ref)
        self._asked[handle.key] = handle
        try:
            self._dispatch(handle, message)
        except self.reply_errors as error:
            self.reply_error(handle, error)

    def _answer(self, sender: ActorAddress, ref: int, ok: bool, value: Any) -> None:
        pending = self._asks.pop(ref, None)
        if pending is None:
            return  # it came after the timeout
        if pending.timer is not None:
            self._host.cancel_timer(pending.timer)
        pending.settle(ok, value)
        if pending.task is not None:
            self._step(pending.task)

    def _forget(self, sender: ActorAddress, ref: Any) -> None:
        """The asker no longer waits."""
        self._asked.pop((sender.actorAddressString, ref), None)

    def _timer_due(self, sender: ActorAddress, ref: int) -> Any:
        found = self._host.take_timer(ref)
        if found is None:
            return None
        payload = found[0]
        if type(payload) is _SleepOver:
            self._answer(sender, payload.ref, True, None)
            return None
        if type(payload) is not _AskTimeout:
            return self.on_timer(payload)
        pending = self._asks.get(payload.ref)
        if pending is not None:
            pending.timer = None
            if pending.target is not None:
                self.send(pending.target, ("$forget", payload.ref))
            self._answer(sender, payload.ref, False, ProcessTimeout("no answer in the time allowed"))
        return None

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

    def _overloaded(self, sender: ActorAddress, address: ActorAddress) -> Any:
        return self.on_overload(address)

    def _close(self, reason: ExitReason) -> None:
        """Everything a process owes others when it ends. Called once by the host, which then forgets it."""
        log = self._host.log
        try:
            self.on_exit()
        except Exception:
            log.exception("%s failed in on_exit", self.myAddress)
        for task in list(self._tasks):
            try:
                task.coroutine.close()
            except Exception:
                log.exception("%s failed to close a coroutine", self.myAddress)
        self._tasks.clear()
        for handle in list(self._asked.values()):
            self.reply_error(handle, ProcessDown(reason))
        for ref, pending in self._asks.items():
            if pending.target is not None:
                self.send(pending.target, ("$forget", ref))
        self._asks.clear()
        for name in list(self._monitor_refs):
            self.demonitor(name)

    def _let_go(self) -> None:
        """Forget all it holds, as the last thing that happens to it.

        Its parts refer to one another and back to it, so what it holds, a queue's messages perhaps, would stay until the collector's rarest round, which looks at how
        many objects there are and not at how large they are.
        """
        self.__dict__.clear()
        for name in self._slots:
            if hasattr(self, name):
                delattr(self, name)


# The runtime's own conversation between processes. A `$` name cannot be a handler's.
_PROTOCOL: dict[str, Handler] = {
    "ask": Process._asked_message,
    "$answer": Process._answer,
    "$forget": Process._forget,
    "$timer": Process._timer_due,
    "$monitor": Process._monitor_request,
    "$demonitor": Process._demonitor_request,
    "$down": Process._down,
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
    """Of a message, what a log may show: its name, never its fields."""
    if type(message) is tuple and message:
        return f"({message[0]!r}, ...) of {len(message)}"
    return type(message).__name__
