"""The process that alone writes the routing table."""

from .process import Metadata

__all__ = ["Metadata"]
