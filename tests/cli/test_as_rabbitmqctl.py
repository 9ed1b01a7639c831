"""A sequence of command lines gets the exit codes and output that RabbitMQ 3.10.8's rabbitmqctl and
rabbitmq-diagnostics gave it.

`tests/testdata/cli/rabbitmqctl-3.10.8.json` has what a fresh node of RabbitMQ answered: for each command line its exit
code, the lines of its standard output, and the first line of its standard error with a text. `<node>` stands for the
name of the node.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

from warren import Broker
from warren.cli.main import main

RECORDED = Path(__file__).resolve().parents[1] / "testdata" / "cli" / "rabbitmqctl-3.10.8.json"

#: Command lines whose exit code differs on purpose.
OTHER_CODES = {
    "list_queues -p nix": 65,  # CM-151: a missing virtual host is an error
    "trace_on -p nix": 65,  # CM-110: a missing virtual host is an error
    "clear_password nobody": 67,  # CM-83: a missing user
    "list_user_permissions nobody": 67,  # CM-98: a missing user
    'set_user_limits nobody {"max-connections":5}': 67,  # CM-83: a missing user
    "set_log_level loud": 65,  # CM-186: an unknown level
    "await_online_nodes 0": 65,  # RabbitMQ crashes
}
#: Command lines whose standard output differs on purpose.
OTHER_OUTPUT = {
    "trace_on -p nix",
    "list_user_topic_permissions ann",  # has the names of columns, as all listings have
    "list_operator_policies",  # apply-to is "queues", because operator policies apply to nothing else
    "list_parameters -q",
    "check_running --formatter json",  # has more keys
    "ping",  # RabbitMQ asks epmd, which warren does not have
    "add_user ann secret",  # the hint names warren's help instead of rabbitmqctl's
    "set_log_level loud",  # the banner comes before the error, because only the node knows the levels
    "reset",  # the banner comes before the error, because only the node knows whether the app runs
    "change_cluster_node_type disc",
    "join_cluster other@localhost",
    # A line after the banner says how long the limit holds (CM-183).
    "set_vm_memory_high_watermark 0.5",
    "set_vm_memory_high_watermark absolute 2GB",
    "set_disk_free_limit 50MB",
}
#: An error that begins with the first text in RabbitMQ must begin with one of both in warren.
SHAPES = ("Error (argument validation): ", "Error:")


def in_order(lines):
    """The lines in a comparable order: RabbitMQ lists users and exchanges in any order, and in JSON a comma precedes
    each object but the first.
    """
    return sorted(line.removeprefix(",") for line in lines)


def test_exit_codes_and_output_are_those_of_rabbitmq(tmp_path, monkeypatch, capfd):
    """Every recorded command line has the exit code and output of RabbitMQ, except where `OTHER_CODES` and
    `OTHER_OUTPUT` name a difference (CM-3, CM-4, CM-15 to CM-20, CM-80 to CM-89, CM-95 to CM-113, CM-120 to CM-126,
    CM-140 to CM-147, CM-167 to CM-171, CM-180 to CM-182, CM-190 to CM-198).
    """
    monkeypatch.setenv("WARREN_DATA_DIR", str(tmp_path))
    wrong = []
    with Broker(port=0, data_dir=str(tmp_path), control_dir=str(tmp_path / "control")) as broker:
        for recorded in json.loads(RECORDED.read_text("utf-8")):
            line = " ".join(recorded["words"])
            monkeypatch.setattr(sys, "argv", ["warren", *recorded["words"]])
            monkeypatch.setattr(sys, "stdin", io.StringIO())
            code = 0
            try:
                main()
            except SystemExit as end:
                code = end.code
            out, err = (text.replace(broker.settings.node_name, "<node>") for text in capfd.readouterr())
            if code != OTHER_CODES.get(line, recorded["code"]):
                wrong.append(f"{line}: exit {code}, in RabbitMQ {recorded['code']}")
            if line not in OTHER_OUTPUT and in_order(out.splitlines()) != in_order(recorded["out"]):
                wrong.append(f"{line}: {out.splitlines()}, in RabbitMQ {recorded['out']}")
            if bool(err) != bool(code):
                wrong.append(f"{line}: exit {code} with the error text {err!r}")
            if recorded["err"].startswith(SHAPES[0]) and not err.startswith(SHAPES):
                wrong.append(f"{line}: {err!r}, in RabbitMQ {recorded['err']!r}")
    assert wrong == []
