"""The states of connections and channels (AB-5, AB-6, AB-17, AB-38, AB-52 to AB-60)."""

from __future__ import annotations

import pytest

from warren.amqp import channel_state, connection_state
from warren.amqp import methods as m
from warren.amqp.errors import AmqpError
from warren.amqp.method import Method
from warren.amqp.methods import METHODS

ALL = [method_class() for method_class in METHODS.values()]
CONNECTION_STATES = list(connection_state.REPORT)

ACCEPTED = {
    "pre_init": set(),
    "starting": {"connection.start-ok"},
    "securing": {"connection.secure-ok"},
    "tuning": {"connection.tune-ok"},
    "opening": {"connection.open"},
    "running": {"connection.close", "connection.update-secret"},
    "blocked": {"connection.close", "connection.update-secret"},
    "closing": {"connection.close"},
    "closed": {"connection.close", "connection.close-ok"},
}


@pytest.mark.parametrize("state", CONNECTION_STATES)
def test_channel_0_accepts_what_the_table_says(state: str) -> None:
    """AB-5: anything else is 504, or ignored in closing and closed."""
    for method in ALL:
        if method.NAME in ACCEPTED[state]:
            assert connection_state.is_welcome(state, method)
        elif state in ("closing", "closed"):
            assert not connection_state.is_welcome(state, method)
        else:
            with pytest.raises(AmqpError) as caught:
                connection_state.is_welcome(state, method)
            error = caught.value
            assert error.reply_text == f"CHANNEL_ERROR - unexpected method in connection state {state}"
            assert (error.class_id, error.method_id) == (method.CLASS_ID, method.METHOD_ID)


def test_every_state_is_in_every_table() -> None:
    """The tables speak of the same nine states."""
    tables = (connection_state.ACCEPTED, connection_state.NEXT, connection_state.READER_PHASE, connection_state.REPORT)
    assert all(list(table) == CONNECTION_STATES for table in tables)
    assert set().union(*connection_state.NEXT.values()) == set(CONNECTION_STATES) - {"pre_init"}


@pytest.mark.parametrize(
    ("state", "code", "capabilities", "report"),
    [
        ("starting", 403, {"authentication_failure_close"}, "close_frame"),
        ("starting", 403, set(), "slow_drop"),
        ("starting", 502, {"authentication_failure_close"}, "slow_drop"),
        ("securing", 503, set(), "slow_drop"),
        ("tuning", 530, set(), "close_frame"),
        ("tuning", 504, set(), "slow_drop"),
        ("opening", 530, set(), "close_frame"),
        ("opening", 541, set(), "close_frame"),
        ("running", 501, set(), "close_frame"),
        ("blocked", 320, set(), "close_frame"),
        ("closing", 541, set(), "close_frame"),
        ("closed", 501, set(), "log_only"),
    ],
)
def test_who_is_told_of_an_error(state: str, code: int, capabilities: set[str], report: str) -> None:
    """AB-38 first table, AB-17."""
    assert connection_state.report_of(state, AmqpError(code), frozenset(capabilities)) == report


def test_an_error_may_ask_for_silence() -> None:
    """AB-18: a slow drop whatever the state, and a drop."""
    assert connection_state.report_of("opening", AmqpError(503, slow_drop=True)) == "slow_drop"
    assert connection_state.report_of("running", AmqpError(503, drop=True)) == "drop"
    assert connection_state.report_of("closed", AmqpError(503, drop=True)) == "log_only"


# --- channels ---------------------------------------------------------------------------------------------------------


def refusal(state: str, method: Method) -> str:
    """The text with which `method` is refused."""
    with pytest.raises(AmqpError) as caught:
        channel_state.is_welcome(state, method)
    assert (caught.value.class_id, caught.value.method_id) == (method.CLASS_ID, method.METHOD_ID)
    assert caught.value.is_connection_error
    return caught.value.reply_text


def test_a_channel_must_be_opened_first() -> None:
    """AB-52: any other first method is 504, channel.close too."""
    assert channel_state.is_welcome("starting", m.ChannelOpen())
    for method in ALL:
        if not isinstance(method, m.ChannelOpen):
            assert refusal("starting", method) == "CHANNEL_ERROR - expected 'channel.open'"


def test_a_channel_is_opened_once() -> None:
    """AB-52."""
    assert refusal("running", m.ChannelOpen()) == "CHANNEL_ERROR - second 'channel.open' seen"


FROM_BROKERS_ONLY = [
    method for method in ALL if method.NAME.endswith(("-ok", "-empty", "-drained")) or method.CLASS_ID == 10
] + [m.BasicReturn(), m.BasicDeliver(), m.BasicCredit()]


@pytest.mark.parametrize("method", FROM_BROKERS_ONLY, ids=lambda method: method.NAME)
def test_methods_a_client_has_no_business_sending(method: Method) -> None:
    """AB-58: 503, as RabbitMQ 3.10.8 answers each of them (but basic.credit, which is internal there)."""
    assert refusal("running", method) == "COMMAND_INVALID - unimplemented method"


def test_all_other_methods_are_welcome_on_a_running_channel() -> None:
    """AB section 6: what a client sends."""
    names = {type(method).__name__ for method in FROM_BROKERS_ONLY} | {"ChannelOpen"}
    for method in ALL:
        if type(method).__name__ not in names:
            assert channel_state.is_welcome("running", method)


def test_while_tx_commit_is_pending_only_close_is_welcome() -> None:
    """AB-56."""
    assert channel_state.is_welcome("committing", m.ChannelClose())
    for method in (m.BasicPublish(), m.BasicAck(), m.TxRollback(), m.ChannelOpen()):
        assert refusal("committing", method) == "CHANNEL_ERROR - unexpected command while processing 'tx.commit'"


def test_a_closing_channel_ignores_all_but_close_and_close_ok() -> None:
    """AB-54."""
    for method in ALL:
        welcome = isinstance(method, (m.ChannelClose, m.ChannelCloseOk))
        assert channel_state.is_welcome("closing", method) is welcome


def test_nowait_leaves_out_the_reply() -> None:
    """AB-60: where there is such a bit."""
    assert channel_state.wants_reply(m.QueueDeclare())
    assert not channel_state.wants_reply(m.QueueDeclare(nowait=True))
    assert channel_state.wants_reply(m.QueueUnbind())
    assert not channel_state.wants_reply(m.BasicAck())
    without = {m.QueueUnbind, m.BasicQos, m.BasicRecover, m.TxSelect, m.TxCommit, m.TxRollback, m.ChannelOpen}
    assert not without & channel_state.NOWAIT_METHODS
    assert all(m.METHODS[c.CLASS_ID, c.METHOD_ID] is c for c in channel_state.NOWAIT_METHODS)


def test_the_reply_to_a_request_has_the_next_method_id_but_once() -> None:
    """AB section 6: exchange.unbind-ok is 40,51."""
    odd = {
        request.NAME: reply.METHOD_ID
        for request, reply in channel_state.REPLIES.items()
        if reply is not None and (reply.CLASS_ID, reply.METHOD_ID) != (request.CLASS_ID, request.METHOD_ID + 1)
    }
    assert odd == {"exchange.unbind": 51}
