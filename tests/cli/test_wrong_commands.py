"""Command lines that newcomers get wrong: the error names the wrong word, the reason and what to do."""

from __future__ import annotations

import sys

import pytest

from warren import Broker
from warren.cli.main import main


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    place = tmp_path_factory.mktemp("node")
    with Broker(control_dir=str(place / "control")) as broker:
        broker.place = place
        yield broker


@pytest.fixture
def run(broker, monkeypatch, capfd):
    """Runs a command in this process; returns exit code and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["warren", *arguments])
        monkeypatch.setenv("WARREN_DATA_DIR", str(broker.place))
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capfd.readouterr().err

    return run


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        (("list_queues", "nmae"), 64, "Info key(s) nmae are not supported\nDid you mean 'name'?\nSupported are: name,"),
        (("list_queues", "--vhsot", "x"), 64, "--vhsot : unknown option. Did you mean '--vhost'?"),
        (("list_queues", "--sort", "x"), 64, "--sort : unknown option"),
        (
            ("set_policy", "p", "^a", "{max-length:10}"),
            69,
            "unless the JSON stands between single quotes: '{\"key\":1}'",
        ),
        (("set_vhost_limits", '{"max-queue":1}'), 69, "in limits. Known are: max-connections, max-queues"),
        (("purge_queue", "nope"), 69, "Error:\nnot_found\nThere is no queue 'nope' in vhost '/'."),
        (("clear_policy", "nope"), 69, "Parameter does not exist\nThere is no policy 'nope' in vhost '/'."),
        (("clear_operator_policy", "nope"), 69, "There is no operator policy 'nope' in vhost '/'."),
        (("clear_global_parameter", "nope"), 69, "There is no global parameter 'nope'."),
        (("set_disk_free_limit", "lots"), 65, "'lots' is no size such as 50MB"),
        (("set_vm_memory_high_watermark", "half"), 65, "'half' is no number"),
        (("set_vm_memory_high_watermark", "absolute", "much"), 65, "'much' is no size such as 50MB"),
    ],
)
def test_the_error_leads_on(run, line, code, text):
    """The error contains what leads to a right command line (CM-10, CM-20, CM-126)."""
    found, err = run(*line)
    assert (found, text in err) == (code, True), err


def test_perf_test_says_that_the_login_was_refused(broker, run):
    """`perf-test` says that the login was refused. It has to ask for that: the broker closes the connection without a
    reason if the client lacks the capability `authentication_failure_close`.
    """
    code, err = run("perf-test", "--uri", f"amqp://nobody:x@127.0.0.1:{broker.port}", "-z", "1")
    assert (code, "403 ACCESS_REFUSED - Login was refused" in err) == (69, True), err


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        (("list_queues", "--formatter", "zzz"), 64, "json_stream"),
        (("list_queues", "-p", "nope"), 65, "Virtual host 'nope' does not exist"),
        (("list_queues", "-p", "nope", "--formatter", "json"), 65, "Virtual host 'nope' does not exist"),
        (("trace_on", "-p", "nope"), 65, "Virtual host 'nope' does not exist"),
        (("eval", "1+1."), 64, "eval"),
    ],
)
def test_what_rabbitmq_accepts_or_does_not_explain_is_refused(run, line, code, text):
    """Command lines on which RabbitMQ crashes, succeeds without effect, exits with 69 or runs code are refused with a
    text that helps (CM-420, CM-421, CM-422, CM-431).
    """
    found, err = run(*line)
    assert found == code and text in err, (found, err)
