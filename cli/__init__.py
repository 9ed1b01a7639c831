"""The `warren` command: a thin click layer over the package. One file per family of commands; no logic here."""

from .main import main

__all__ = ["main"]
