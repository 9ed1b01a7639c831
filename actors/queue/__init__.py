"""The process of one queue."""

from .process import Queue

__all__ = ["Queue"]
