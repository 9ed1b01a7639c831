"""The AMQP 0-9-1 wire, sans I/O: bytes in, events out. No sockets, no actors, no clock.

A connection feeds what its socket gave to :class:`~warren.amqp.reader.FrameReader` and takes events; what it
sends, it builds with :mod:`~warren.amqp.methods` and :mod:`~warren.amqp.frames`. Which method may come when is
said by :mod:`~warren.amqp.connection_state` and :mod:`~warren.amqp.channel_state`.
"""
