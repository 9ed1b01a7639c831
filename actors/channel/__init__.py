"""The process of one AMQP channel."""

from .process import Channel

__all__ = ["Channel"]
