"""The states of connections and channels (AB-5, AB-6, AB-17, AB-38, AB-52 to AB-60)."""

from __future__ import annotations

import pytest

from warren.amqp import channel_state, connection_state
from warren.amqp import methods as m
from warren.amqp.errors import AmqpError
from warren.amqp.method import Method
from warren.amqp.methods import METHODS

ALL = [method_class() for method_class in METHODS.values()]

ACCEPTED: dict[str, set[str]] = {
    "pre_init": set(),
    "starting": {"connection.start-ok"},
    "securing": {"connection.secure-ok"},
    "tuning": {"connection.tune-ok"},
    "opening": {"connection.open"},
    "running": {"connection.close", "connection.update-secret"},
    "blocked": {"connection.close", "connection.update-secret"},
}


@pytest.mark.parametrize("state", ACCEPTED)
def test_channel_0_accepts_the_methods_of_the_table(state: str) -> None:
    """Channel 0 accepts in each state the methods of the table, and any other is refused with 504 (AB-5)."""
    for method in ALL:
        if method.NAME in ACCEPTED[state]:
            connection_state.check_method(state, method)
        else:
            with pytest.raises(AmqpError) as caught:
                connection_state.check_method(state, method)
            error = caught.value
            assert error.reply_text == f"CHANNEL_ERROR - unexpected method in connection state {state}"
            assert (error.class_id, error.method_id) == (method.CLASS_ID, method.METHOD_ID)


def test_every_state_has_a_report_and_all_but_the_last_two_accepted_methods() -> None:
    """Every state has its report of errors, and all but the last two have their accepted methods: closing and closed
    connections are the work of `actors/connection/closing.py`.
    """
    assert list(connection_state.ACCEPTED) == list(ACCEPTED)
    assert list(connection_state.REPORT) == [*ACCEPTED, "closing", "closed"]


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
def test_how_an_error_is_reported(state: str, code: int, capabilities: set[str], report: str) -> None:
    """How an error is reported depends on state, code and capabilities, as in the first table of AB-38 (AB-17)."""
    assert connection_state.choose_report(state, AmqpError(code), frozenset(capabilities)) == report


def test_the_flags_of_an_error_override_the_report_of_the_state() -> None:
    """The flags `slow_drop` and `drop` of an error override the report of every state but closed (AB-18)."""
    assert connection_state.choose_report("opening", AmqpError(503, slow_drop=True)) == "slow_drop"
    assert connection_state.choose_report("running", AmqpError(503, drop=True)) == "drop"
    assert connection_state.choose_report("closed", AmqpError(503, drop=True)) == "log_only"


# -- channels ---


def refusal(state: str, method: Method) -> str:
    """The reply text with which `method` is refused."""
    with pytest.raises(AmqpError) as caught:
        channel_state.check_method(state, method)
    assert (caught.value.class_id, caught.value.method_id) == (method.CLASS_ID, method.METHOD_ID)
    assert caught.value.is_connection_error
    return caught.value.reply_text


def test_a_channel_is_opened_only_once() -> None:
    """AB-52: a second channel.open is refused with 504."""
    assert refusal("running", m.ChannelOpen()) == "CHANNEL_ERROR - second 'channel.open' seen"


FROM_BROKERS_ONLY = [
    method for method in ALL if method.NAME.endswith(("-ok", "-empty", "-drained")) or method.CLASS_ID == 10
] + [m.BasicReturn(), m.BasicDeliver(), m.BasicCredit()]


@pytest.mark.parametrize("method", FROM_BROKERS_ONLY, ids=lambda method: method.NAME)
def test_methods_that_only_brokers_send_are_refused(method: Method) -> None:
    """A method that only brokers send is refused with 503, as RabbitMQ 3.10.8 answers each of them (except
    basic.credit, which is internal there) (AB-58).
    """
    assert refusal("running", method) == "COMMAND_INVALID - unimplemented method"


def test_a_running_channel_accepts_all_other_methods() -> None:
    """A running channel accepts all other methods that clients send (amqp-broker section 6)."""
    names = {type(method).__name__ for method in FROM_BROKERS_ONLY} | {"ChannelOpen"}
    for method in ALL:
        if type(method).__name__ not in names:
            channel_state.check_method("running", method)


def test_only_close_is_accepted_while_tx_commit_is_pending() -> None:
    """AB-56: any other method is refused with 504."""
    channel_state.check_method("committing", m.ChannelClose())
    for method in (m.BasicPublish(), m.BasicAck(), m.TxRollback(), m.ChannelOpen()):
        assert refusal("committing", method) == "CHANNEL_ERROR - unexpected command while processing 'tx.commit'"
