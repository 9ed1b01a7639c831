"""The life of a connection, as tables (AB-5, AB-6, AB-28 to AB-31, AB-38).

A handshake of five exchanges leads to `running`; a close handshake ends it::

    pre_init -> starting -> securing -> tuning -> opening -> running <-> blocked -> closing -> closed

========  ============================  ========================  ==================================
state     waits for                     then sends                and becomes
========  ============================  ========================  ==================================
pre_init  the 8-byte protocol header    connection.start          starting
starting  start-ok                      secure, or tune           securing, or tuning
securing  secure-ok                     secure again, or tune     securing, or tuning
tuning    tune-ok                       nothing                   opening
opening   open                          open-ok                   running
running   anything on its channels      replies                   blocked, when a publish meets an alarm
blocked   the end of the alarm          connection.unblocked      running
closing   its channels to end           close-ok                  closed
closed    close-ok, or the peer to go   nothing                   (the socket is closed)
========  ============================  ========================  ==================================

The client's connection.close leads to `closing`, which ends when all channels and exclusive queues are gone (AB-28). An
error that the broker finds leads directly to `closed`: the broker sends connection.close and waits for close-ok
(AB-29). Before `opening` the broker sends a faulty peer no close frame, with the exceptions in `_CLOSE_FRAME_IF`: the
peer may be guessing passwords, or not speak AMQP.

The connection process holds the state. This module has the rules up to `blocked`, and how an error is reported in each
state; `actors/connection/closing.py` handles the methods that arrive in `closing` and `closed`.
"""

from __future__ import annotations

from .constants import ACCESS_REFUSED, CHANNEL_ERROR, NOT_ALLOWED
from .errors import AmqpError
from .method import Method
from .methods import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
)

PRE_INIT = "pre_init"
STARTING = "starting"
SECURING = "securing"
TUNING = "tuning"
OPENING = "opening"
RUNNING = "running"
BLOCKED = "blocked"
CLOSING = "closing"
CLOSED = "closed"

#: The methods that a client may send on channel 0.
ACCEPTED: dict[str, frozenset[type[Method]]] = {
    PRE_INIT: frozenset(),
    STARTING: frozenset({ConnectionStartOk}),
    SECURING: frozenset({ConnectionSecureOk}),
    TUNING: frozenset({ConnectionTuneOk}),
    OPENING: frozenset({ConnectionOpen}),
    RUNNING: frozenset({ConnectionClose, ConnectionUpdateSecret}),
    BLOCKED: frozenset({ConnectionClose, ConnectionUpdateSecret}),
}

#: Report an error with a connection.close frame.
CLOSE_FRAME = "close_frame"
#: Send nothing for 3 s, then close the socket.
SLOW_DROP = "slow_drop"
#: Close the socket at once.
DROP = "drop"
#: Log the error; the client is already being disconnected.
LOG_ONLY = "log_only"

#: How an error is reported to the client in each state (AB-38).
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

#: Exceptions to REPORT: errors that get a close frame if the client declared this capability ("": any client). A
#: refused login is reported only to clients that asked for it (AB-17).
_CLOSE_FRAME_IF: dict[tuple[str, int], str] = {
    (STARTING, ACCESS_REFUSED): "authentication_failure_close",
    (SECURING, ACCESS_REFUSED): "authentication_failure_close",
    (TUNING, NOT_ALLOWED): "",
}


def check_method(state: str, method: Method) -> None:
    """Raise AmqpError 504 if a client may not send `method` on channel 0 in `state`, one of `ACCEPTED` (AB-5)."""
    if type(method) not in ACCEPTED[state]:
        text = f"unexpected method in connection state {state}"
        raise AmqpError(CHANNEL_ERROR, text, method.CLASS_ID, method.METHOD_ID)


def choose_report(state: str, error: AmqpError, capabilities: frozenset[str] = frozenset()) -> str:
    """How to report `error` to the client in `state` (AB-38): CLOSE_FRAME, SLOW_DROP, DROP or LOG_ONLY.

    `capabilities` are those that the client declared true.
    """
    if state != CLOSED and error.drop:
        return DROP
    if state != CLOSED and error.slow_drop:
        return SLOW_DROP
    needed = _CLOSE_FRAME_IF.get((state, error.code))
    if needed is not None and (not needed or needed in capabilities):
        return CLOSE_FRAME
    return REPORT[state]
