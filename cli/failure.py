"""Failures of commands: an error line for a person and an exit code of sysexits.h for a script."""

from typing import Any

import click

EX_USAGE = 64
EX_DATAERR = 65
EX_NOINPUT = 66
EX_NOUSER = 67
EX_UNAVAILABLE = 69
EX_SOFTWARE = 70
EX_TEMPFAIL = 75
EX_CONFIG = 78


class CommandFailure(click.ClickException):
    """An error that ends the process with this exit code."""

    def __init__(self, text: str, code: int):
        super().__init__(text)
        self.code = code
        #: What a JSON formatter prints besides the text.
        self.facts: dict[str, Any] = {}
