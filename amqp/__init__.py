"""The AMQP 0-9-1 wire protocol without I/O: bytes in, events out. No sockets, no actors, no clock.

A connection feeds the bytes that it reads from its socket to a :class:`~warren.amqp.parser.reader.FrameReader` and
takes events from it. It builds what it sends with :mod:`~warren.amqp.methods` and :mod:`~warren.amqp.frames`. The
tables of :mod:`~warren.amqp.connection_state` and :mod:`~warren.amqp.channel_state` list the methods that a client
may send in each state.
"""

if __name__ == "amqp":
    # A program imported the client library `amqp` (kombu and Celery do) and found this folder first.
    from pathlib import Path

    raise ImportError(
        f"this is warren's folder {Path(__file__).parent}, not the client library 'amqp': Python searches the clone of "
        "warren before its installed packages, because it was started there. Start it from another folder, or set "
        "PYTHONSAFEPATH=1 (the same as python -P)"
    )
