"""`no_real_world`: makes every use of real time, threads, randomness and sockets fail."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import select
import socket
import threading
import time
import uuid
from contextlib import contextmanager


def refuse(name, real):
    """A replacement for `real` that raises in this thread, which is the only one of a simulation. In other threads it
    still works, because a broker of an earlier test may be ending there.
    """
    simulating = threading.get_ident()

    def refused(*args, **kwargs):
        if threading.get_ident() == simulating:
            raise AssertionError(f"the simulation used {name}")
        return real(*args, **kwargs)

    return refused


@contextmanager
def no_real_world(monkeypatch):
    """Make real clocks, threads, random sources, sockets and polls raise AssertionError.

    Logging is off, because log records carry the real time; no actor reads them.
    """
    logging.disable(logging.CRITICAL)
    with monkeypatch.context() as sealed:
        for module, names in {
            time: (
                "time",
                "time_ns",
                "monotonic",
                "monotonic_ns",
                "perf_counter",
                "perf_counter_ns",
                "sleep",
                "process_time",
                "localtime",
                "gmtime",
            ),
            os: ("urandom", "getrandom", "eventfd", "pipe", "getpid", "statvfs"),
            random: (
                "random",
                "randint",
                "randrange",
                "choice",
                "getrandbits",
                "randbytes",
                "shuffle",
                "seed",
                "SystemRandom",
            ),
            secrets: ("token_bytes", "token_hex", "randbelow", "choice"),
            uuid: ("uuid1", "uuid4"),
            socket: ("socket", "socketpair", "create_connection", "create_server", "getaddrinfo"),
            select: ("select", "poll", "epoll"),
            threading.Thread: ("start",),
            asyncio: ("get_running_loop", "new_event_loop"),
        }.items():
            for name in names:
                sealed.setattr(module, name, refuse(f"{module.__name__}.{name}", getattr(module, name)))
        yield
    logging.disable(logging.NOTSET)
