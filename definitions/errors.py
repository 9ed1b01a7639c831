"""`DefinitionError`: the refusal of a change that an operator asked for."""

from __future__ import annotations

from typing import Literal

#: What kind of refusal it is. The command line exits with a status of its own for each, because scripts written for
#: rabbitmqctl look at the status: malformed data, an unknown user, a refused change, a user that exists already.
Kind = Literal["data", "no_user", "unavailable", "software"]


class DefinitionError(Exception):
    """A change that was refused and changed nothing. `text` is RabbitMQ's where scripts look at it."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(kind, text)
        self.kind: Kind = kind
        self.text = text

    def __str__(self) -> str:
        return self.text
