"""`TomlFile`: a file of settings, and where in it a setting stands."""

import tomllib
from os import PathLike
from typing import Any

from .fields import SettingsError


class TomlFile:
    """The file as it was read. Raises SettingsError if it is not TOML, and OSError if it cannot be read."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = path
        with open(path, "rb") as file:
            text = file.read()
        try:
            self._text = text.decode("utf-8")
            #: The top-level keys and their values.
            self.values: dict[str, Any] = tomllib.loads(self._text)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError("", f"{path}: this is not TOML: {error}") from None

    def place(self, key: str) -> str:
        """`path, line n` for the first line that sets the key, which the parser does not report; otherwise the path."""
        for number, line in enumerate(self._text.splitlines(), 1):
            name = line.split("=", 1)[0].split(".", 1)[0].strip().strip("\"'[]")
            if name == key:
                return f"{self._path}, line {number}"
        return str(self._path)
