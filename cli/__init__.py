"""The `warren` command: a thin click layer over the package, without logic of its own. Each command has a file."""

from .importing import without_collector

with without_collector():
    from .main import main

__all__ = ["main"]
