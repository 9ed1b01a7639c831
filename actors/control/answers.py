"""The answers to one request of the control protocol, which `ControlSession` and `RemoteSession` send."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from ...amqp.errors import AmqpError
from ...runtime.errors import ProcessDown, ProcessError, ProcessTimeout
from ...settings.limits import LimitError
from ..contracts.node import to_node
from ..node.operations.catalogue import perform
from ..node.operations.registry import OperationError, Operator

#: Rows in one message.
ROWS_MAX = 200

Answer = dict[str, object]


async def answers(operator: Operator, name: str, arguments: Mapping[str, object]) -> AsyncIterator[Answer]:
    """Perform an operation. Yields any number of messages with `rows`, then one with `result` or `error`."""
    try:
        state = await operator.process.ask(operator.node, to_node.app_state())
        outcome = perform(operator, name, arguments, state)
        if isinstance(outcome, AsyncIterator):
            async for rows in outcome:
                for start in range(0, len(rows), ROWS_MAX):
                    yield {"rows": rows[start : start + ROWS_MAX]}
            last: Answer = {"result": None}
        else:
            last = {"result": await outcome}
            rows = last["result"]
            if isinstance(rows, list):
                for start in range(0, len(rows), ROWS_MAX):
                    yield {"rows": rows[start : start + ROWS_MAX]}
                last = {"result": None}
    except OperationError as error:
        last = refusal(error.kind, error.text, error.details)
    except LimitError as error:
        last = refusal("data", str(error))
    except AmqpError as error:
        last = refusal("unavailable", error.text, code=error.code)
    except (ProcessDown, ProcessTimeout) as error:
        last = refusal("unavailable", f"a part of the node does not answer: {error}")
    except ProcessError as error:
        last = refusal("unavailable", str(error))
    yield last


def refusal(kind: str, text: str, details: tuple[str, ...] = (), code: int = 0) -> Answer:
    """The answer that refuses a request. `code` is AMQP's reply code if an AMQP client could have been refused the
    same, else 0.
    """
    return {"error": {"kind": kind, "text": text, "details": list(details), "code": code}}
