"""The life of a connection, as tables (AB-5, AB-6, AB-28 to AB-31, AB-38).

A connection is a chain of five questions and answers, then a plain, then a farewell::

    pre_init -> starting -> securing -> tuning -> opening -> running <-> blocked -> closing -> closed

========  ============================  ========================  ==================================
state     waits for                     then sends                and becomes
========  ============================  ========================  ==================================
pre_init  the 8 octets of the protocol  connection.start          starting
starting  start-ok                      secure, or tune           securing, or tuning
securing  secure-ok                     secure again, or tune     securing, or tuning
tuning    tune-ok                       nothing                   opening
opening   open                          open-ok                   running
running   anything on its channels      replies                   blocked, when a publish meets an alarm
blocked   the end of the alarm          connection.unblocked      running
closing   its channels to end           close-ok                  closed
closed    close-ok, or the peer to go   nothing                   (the socket is closed)
========  ============================  ========================  ==================================

`closing` is entered by the client's close, and left when channels and exclusive queues are gone (AB-28). An error of
the server goes to `closed` directly: its connection.close is sent, and close-ok is what it waits for (AB-29).
Before `opening` a faulty peer is not told anything: it might be guessing at passwords, or not speak AMQP at all.

The connection process owns the state; here is only what follows from it.
"""

from __future__ import annotations

from .constants import ACCESS_REFUSED, CHANNEL_ERROR, NOT_ALLOWED
from .errors import AmqpError
from .method import Method
from .methods import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
)
from .reader import CLOSING as PHASE_CLOSING
from .reader import HANDSHAKE as PHASE_HANDSHAKE
from .reader import RUNNING as PHASE_RUNNING

PRE_INIT = "pre_init"
STARTING = "starting"
SECURING = "securing"
TUNING = "tuning"
OPENING = "opening"
RUNNING = "running"
BLOCKED = "blocked"
CLOSING = "closing"
CLOSED = "closed"

# Which methods a client may send on channel 0.
ACCEPTED: dict[str, frozenset[type[Method]]] = {
    PRE_INIT: frozenset(),
    STARTING: frozenset({ConnectionStartOk}),
    SECURING: frozenset({ConnectionSecureOk}),
    TUNING: frozenset({ConnectionTuneOk}),
    OPENING: frozenset({ConnectionOpen}),
    RUNNING: frozenset({ConnectionClose, ConnectionUpdateSecret}),
    BLOCKED: frozenset({ConnectionClose, ConnectionUpdateSecret}),
    CLOSING: frozenset({ConnectionClose}),
    CLOSED: frozenset({ConnectionClose, ConnectionCloseOk}),
}

# Where the connection may go from each state. A lost socket ends it from anywhere.
NEXT: dict[str, frozenset[str]] = {
    PRE_INIT: frozenset({STARTING}),
    STARTING: frozenset({SECURING, TUNING, CLOSED}),
    SECURING: frozenset({SECURING, TUNING, CLOSED}),
    TUNING: frozenset({OPENING, CLOSED}),
    OPENING: frozenset({RUNNING, CLOSED}),
    RUNNING: frozenset({BLOCKED, CLOSING, CLOSED}),
    BLOCKED: frozenset({RUNNING, CLOSING, CLOSED}),
    CLOSING: frozenset({CLOSED}),
    CLOSED: frozenset(),
}

# What `FrameReader.phase` has to be.
READER_PHASE: dict[str, str] = {
    PRE_INIT: PHASE_HANDSHAKE,
    STARTING: PHASE_HANDSHAKE,
    SECURING: PHASE_HANDSHAKE,
    TUNING: PHASE_HANDSHAKE,
    OPENING: PHASE_HANDSHAKE,
    RUNNING: PHASE_RUNNING,
    BLOCKED: PHASE_RUNNING,
    CLOSING: PHASE_CLOSING,
    CLOSED: PHASE_CLOSING,
}

# How an error is told to the client: by a connection.close; by 3 s of silence and a closed socket; by a closed socket;
# not at all.
CLOSE_FRAME = "close_frame"
SLOW_DROP = "slow_drop"
DROP = "drop"
LOG_ONLY = "log_only"

REPORT: dict[str, str] = {
    PRE_INIT: DROP,
    STARTING: SLOW_DROP,
    SECURING: SLOW_DROP,
    TUNING: SLOW_DROP,
    OPENING: CLOSE_FRAME,
    RUNNING: CLOSE_FRAME,
    BLOCKED: CLOSE_FRAME,
    CLOSING: CLOSE_FRAME,
    CLOSED: LOG_ONLY,
}

# The two exceptions to REPORT. A refused login is told only to clients that asked for it (AB-17).
_REPORTED_ANYWAY: dict[tuple[str, int], str] = {
    (STARTING, ACCESS_REFUSED): "authentication_failure_close",
    (SECURING, ACCESS_REFUSED): "authentication_failure_close",
    (TUNING, NOT_ALLOWED): "",
}


def is_welcome(state: str, method: Method) -> bool:
    """Whether `method` on channel 0 is to be handled; False: it is to be ignored.

    Raises AmqpError 504 if it may neither be handled nor ignored (AB-5).
    """
    if type(method) in ACCEPTED[state]:
        return True
    if state in (CLOSING, CLOSED):
        return False
    text = f"unexpected method in connection state {state}"
    raise AmqpError(CHANNEL_ERROR, text, method.CLASS_ID, method.METHOD_ID)


def report_of(state: str, error: AmqpError, capabilities: frozenset[str] = frozenset()) -> str:
    """How `error` is told to the client in `state` (AB-38): CLOSE_FRAME, SLOW_DROP, DROP or LOG_ONLY.

    `capabilities` are those the client declared true.
    """
    if state != CLOSED and error.drop:
        return DROP
    if state != CLOSED and error.slow_drop:
        return SLOW_DROP
    needed = _REPORTED_ANYWAY.get((state, error.code))
    if needed is not None and (not needed or needed in capabilities):
        return CLOSE_FRAME
    return REPORT[state]
