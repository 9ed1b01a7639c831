"""Contracts: for each process, the messages that it receives, with their types.

A message in flight is a tuple `(name, *fields)` (see `process`). A contract is the one place that lists the messages
of a process, and the only way in which other processes make them:

    class ToQueue(Contract):
        @message
        def publish(self, channel_id: str, entries: list[Entry]) -> None:
            '''Messages for the queue, one credit for each.'''

        @message
        def counts(self) -> tuple[int, int]:
            '''Ready messages and consumers.'''

    to_queue = ToQueue()

    self.send(queue, to_queue.publish("c1", entries))       # ("publish", "c1", entries)
    ready, consumers = await self.ask(queue, to_queue.counts())

`queue` is an `Address[ToQueue]`. The type checker therefore reports a message that the receiver does not take, a
missing field, a field of another type, and a wrong use of the answer: the return type of a contract's method is the
type of the answer, None if there is none. Kinds of process that can take each other's place have contracts that derive
from a common one.

The methods are never run: `message` replaces each by a function that returns the tuple, which costs 0.05 µs a message.
`tests/architecture` checks that the handlers of a process (`on_publish`, `on_counts`) fit its contract, and generates
the table of messages in `docs/internals/architecture.md` from the contracts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from thespian.actors import ActorAddress

if TYPE_CHECKING:
    from .coroutines import ReplyHandle

P = ParamSpec("P")
C = TypeVar("C")
Receiver = TypeVar("Receiver", covariant=True)
Answer = TypeVar("Answer", covariant=True)


class Contract:
    """Base class of all contracts; an instance has nothing of its own."""

    __slots__ = ()

    #: The listed messages by name, as the methods that declare them.
    messages: dict[str, Callable[..., Any]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.messages = {}
        for base in cls.__bases__:
            cls.messages |= getattr(base, "messages", {})
        for name, attribute in cls.__dict__.items():
            if isinstance(attribute, staticmethod):
                cls.messages[name] = attribute.__wrapped__.declared  # type: ignore[attr-defined]


if TYPE_CHECKING:

    class Address(Generic[Receiver]):
        """The address of a process that keeps the contract `Receiver`."""

        #: The same text for every copy of the address.
        actorAddressString: str

    class ProcessMessage(Generic[C, Answer]):
        """A message for a process with the contract `C`, whose asker gets an `Answer`."""

    class message(Generic[C, P, Answer]):
        """Declares a message of a contract."""

        def __init__(self, declared: Callable[Concatenate[C, P], Answer]) -> None: ...

        def __get__(self, contract: C, owner: type[C]) -> Callable[P, ProcessMessage[C, Answer]]: ...

    Sender = Address[Any] | ReplyHandle

else:

    class Address(ActorAddress):
        def __class_getitem__(cls, item: Any) -> Any:
            return cls

    def message(declared: Callable[..., Any]) -> staticmethod:
        parameters = list(inspect.signature(declared).parameters.values())[1:]
        names = [parameter.name for parameter in parameters]
        defaults = {
            f"_{parameter.name}": parameter.default
            for parameter in parameters
            if parameter.default is not parameter.empty
        }
        fields = ", ".join(name if f"_{name}" not in defaults else f"{name}=_{name}" for name in names)
        value = ", ".join([repr(declared.__name__), *names])
        make = eval(f"lambda {fields}: ({value},)", defaults)
        make.__name__, make.__qualname__, make.__doc__ = declared.__name__, declared.__qualname__, declared.__doc__
        make.declared = declared
        return staticmethod(make)

    ProcessMessage = Any
    Sender = Any
