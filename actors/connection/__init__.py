"""The process of one client connection."""

from .process import Connection

__all__ = ["Connection"]
