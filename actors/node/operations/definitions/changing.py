"""What operations on definitions share: proposing a command, and checks of what it names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .....amqp.errors import AmqpError
from .....definitions.errors import DefinitionError
from .....definitions.records import User
from .....routing.queue_types import DEFAULT_TYPES
from ....context.events import OPERATOR
from ....contracts.metadata import to_metadata
from ....metadata.state.commands import DefinitionCommand
from ..registry import OperationError, Operator


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the errors of definitions into those of operations."""
    try:
        yield
    except DefinitionError as error:
        raise OperationError(error.kind, error.text) from None
    except AmqpError as error:
        # The disk does not take the change.
        raise OperationError("unavailable", error.text) from None


async def change(operator: Operator, command: DefinitionCommand) -> int:
    """Have the command applied, and return how many records it changed. Raises OperationError."""
    with refusals():
        return await operator.process.ask(
            operator.context.metadata, to_metadata.change_definitions(command._replace(by=OPERATOR))
        )


def known_user(operator: Operator, name: str) -> User:
    """The user of this name. Raises OperationError."""
    found = operator.context.definitions.user(name)
    if found is None:
        raise OperationError("no_user", f'User "{name}" does not exist')
    return found


def checked_default_type(given: str) -> str:
    """The default queue type of a virtual host; empty for none, which RabbitMQ lists as `undefined`.

    Raises DefinitionError.
    """
    if given in ("", "undefined"):
        return ""
    if given not in DEFAULT_TYPES:
        raise DefinitionError(
            "software",
            f"invalid_queue_type: the default queue type is one of {', '.join(DEFAULT_TYPES)}, not '{given}'",
        )
    return given
