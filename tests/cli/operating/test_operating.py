"""What an operator looks at and sets while a node runs: memory, columns of queues, certificates, the cluster's name,
the pace of a queue, the report and the shutdown.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pika
import pytest
import trustme

from warren import Broker
from warren.actors.control import place
from warren.cli.main import main

WARREN = Path(sys.executable).with_name("warren")


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "node"


@pytest.fixture
def broker(directory):
    with Broker(port=0, control_dir=str(directory / "control"), data_dir=str(directory)) as broker:
        yield broker


@pytest.fixture
def run(monkeypatch, capfd, directory):
    """`run(*arguments)` runs a command in this process, and returns its exit code, its output and its error text."""

    def run(*arguments, finds_node=True):
        words = ["warren", *(["--data-dir", str(directory)] if finds_node else []), *arguments]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        return end.value.code, out, err

    return run


def rows(run, *arguments):
    code, out, err = run(*arguments, "--formatter", "json")
    assert (code, err) == (0, "")
    return json.loads(out)


# -- memory ---


def test_memory_breakdown_has_all_categories_and_their_sum_is_the_resident_memory(broker, run):
    """`memory_breakdown` has all categories, and their sum is the resident memory (CM-72, CM-73, CM-201)."""
    broker.declare_queue("q")
    before = rows(run, "memory_breakdown")
    broker.publish(b"x" * 8_000_000, "q")
    found = rows(run, "memory_breakdown")
    assert found["binary"]["bytes"] - before["binary"]["bytes"] == 8_000_000
    assert {"connection_readers", "queue_procs", "mnesia", "msg_index", "code", "other_system"} <= found.keys()
    if Path("/proc/self/status").exists():
        [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:")]
        resident = int(line.split()[1]) * 1024
        assert abs(sum(one["bytes"] for one in found.values()) - resident) < 0.2 * resident
        assert found["mnesia"]["bytes"] > 0
        assert found["code"]["bytes"] > 1_000_000
    assert abs(sum(one["percentage"] for one in found.values()) - 100) < 0.2


def test_memory_breakdown_for_people_and_as_csv(broker, run):
    """For people `memory_breakdown` prints the largest category first; its CSV has three columns (CM-73, CM-201)."""
    code, out, _ = run("memory_breakdown", "--unit", "mb")
    first, *lines = out.splitlines()
    assert (code, first) == (0, "Reporting memory breakdown on node warren@localhost...")
    sizes = [float(line.split(": ")[1].split(" mb")[0]) for line in lines]
    assert sizes == sorted(sizes, reverse=True)
    _, out, _ = run("memory_breakdown", "--formatter", "csv")
    table = list(csv.DictReader(out.splitlines()))
    assert len(table) == len(lines)
    assert table[0].keys() == {"category", "bytes", "percentage"}


def test_status_shows_the_watermark_in_use(broker, run):
    """`status` shows the watermark that a command has set, because the limit beside it was computed from that one and
    not from the settings (CM-70, CM-71).
    """
    assert run("set_vm_memory_high_watermark", "0.25")[0] == 0
    assert "Memory high watermark setting: 0.25, computed to:" in run("status")[1]
    assert run("set_vm_memory_high_watermark", "absolute", "2GB")[0] == 0
    assert rows(run, "status")["vm_memory_high_watermark_setting"] == {"absolute": "2GB"}


# -- columns of queues ---


def test_a_queue_shows_what_it_writes_to_the_disk_and_reads_from_it(broker, run):
    """`disk_reads` and `disk_writes` count the messages that a lazy queue has read and written (CM-152)."""
    columns = ("disk_reads", "disk_writes")
    broker.declare_queue("q", durable=True, arguments={"x-queue-mode": "lazy"})
    assert rows(run, "list_queues", *columns) == [{"disk_reads": 0, "disk_writes": 0}]
    for _ in range(2):
        broker.publish(b"l" * 100_000, "q", delivery_mode=2)
    assert rows(run, "list_queues", *columns) == [{"disk_reads": 0, "disk_writes": 2}]
    assert [len(broker.get("q").body) for _ in range(2)] == [100_000, 100_000]
    assert rows(run, "list_queues", *columns) == [{"disk_reads": 2, "disk_writes": 2}]


def test_small_messages_are_read_from_segments(broker, run):
    """Small messages in segments are counted when they are read. A message that is not in a segment yet is not read,
    and one may be read twice while a flush appends to its segment, so the count lies in a range.
    """
    broker.declare_queue("q", durable=True, arguments={"x-queue-mode": "lazy"})
    count = 3_000
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        for _ in range(count):
            channel.basic_publish("", "q", b"s" * 200, pika.BasicProperties(delivery_mode=2))
        channel.queue_declare("q", passive=True)
        for _ in range(count):
            assert channel.basic_get("q", auto_ack=True)[0] is not None
    [row] = rows(run, "list_queues", "disk_reads", "disk_writes")
    assert 0 < row["disk_reads"] <= 2 * count
    assert row["disk_writes"] == count


def test_what_a_queue_has_in_memory(broker, run):
    """`memory` grows by the bodies and by 100 bytes for each message (CM-152)."""
    broker.declare_queue("q")
    [empty] = rows(run, "list_queues", "memory")
    broker.publish(b"small", "q")
    broker.publish(b"l" * 100_000, "q")
    [full] = rows(run, "list_queues", "memory")
    assert full["memory"] - empty["memory"] == 100_005 + 2 * 100


def test_disk_columns_of_a_queue_without_a_disk(tmp_path, run, directory):
    with Broker(port=0, control_dir=str(directory / "control")) as broker:
        broker.declare_queue("q", durable=True)
        broker.publish(b"message", "q", delivery_mode=2)
        [row] = rows(run, "list_queues", "disk_reads", "disk_writes")
    assert row == {"disk_reads": 0, "disk_writes": 0}


def test_replicated_types_of_queues_name_their_leader_and_members(broker, run):
    """For quorum queues and streams the columns name leader and members; for classic queues they are empty, as in
    RabbitMQ (CM-152).
    """
    for kind in ("classic", "quorum", "stream"):
        broker.declare_queue(kind, durable=True, arguments={"x-queue-type": kind})
    node = "warren@localhost"
    assert {row.pop("name"): row for row in rows(run, "list_queues", "name", "leader", "members", "online")} == {
        "classic": {"leader": "", "members": "", "online": ""},
        "quorum": {"leader": node, "members": [node], "online": [node]},
        "stream": {"leader": node, "members": [node], "online": [node]},
    }


def test_queues_that_run_and_queues_that_do_not_are_all_queues(broker, run):
    """`--online` and `--offline` together list all queues, and `--offline` alone those that do not run (CM-151)."""
    broker.declare_queue("q")
    assert rows(run, "list_queues", "--online", "--offline") == [{"name": "q", "messages": 0}]
    assert rows(run, "list_queues", "--offline") == []


# -- certificates ---


@pytest.fixture
def tls_broker(tmp_path, directory):
    path = tmp_path / "cert.pem"
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(path)
    with Broker(
        port=0, tls_port=0, tls_cert_file=str(path), control_dir=str(directory / "control"), data_dir=False
    ) as broker:
        broker.certificate = path
        yield broker


def test_a_certificate_that_does_not_expire_soon_passes(tls_broker, run):
    """The check succeeds if no certificate expires within the default of 4 weeks (CM-199)."""
    assert run("check_certificate_expiration") == (
        0,
        "Checking certificate expiration on node warren@localhost ...\nNo certificates are expiring within 4 weeks.\n",
        "",
    )


def test_a_certificate_that_expires_within_the_time_fails_the_check(tls_broker, run):
    """The check fails if a certificate expires within the given time, and names file and date (CM-199)."""
    code, _, err = run("check_certificate_expiration", "--within", "2000", "--unit", "years")
    assert code == 69
    assert err.startswith("Error:\nCertificates expiring within 2000 years:\n")
    assert f"  * {tls_broker.certificate}: ends at " in err
    code, out, err = run("check_certificate_expiration", "--within", "2000", "--unit", "years", "--formatter", "json")
    [certificate] = json.loads(err)["certificates"]
    assert (code, out, certificate["file"]) == (69, "", str(tls_broker.certificate))


def test_a_certificate_file_that_cannot_be_read_any_more_fails_the_check(tls_broker, run):
    tls_broker.certificate.unlink()
    code, _, err = run("check_certificate_expiration")
    assert code == 69
    assert f"the certificate in '{tls_broker.certificate}' cannot be read" in err


def test_a_certificate_for_other_nodes_that_expires_fails_the_check(tmp_path, directory, run):
    """A node whose certificate has expired cannot be linked to the others any more (CL-7, CM-199)."""
    path, authority = tmp_path / "node.pem", tmp_path / "ca.pem"
    renew(path)
    trustme.CA().cert_pem.write_to_path(authority)
    files = {"cluster_tls_cert_file": str(path), "cluster_tls_ca_file": str(authority)}
    with Broker(port=0, control_dir=str(directory / "control"), data_dir=False, **files):
        code, _, err = run("check_certificate_expiration", "--within", "2000", "--unit", "years")
    assert code == 69
    assert f"  * {path}: ends at " in err and f"  * {authority}: ends at " in err


def test_a_node_without_tls_has_no_certificate_that_expires(broker, run):
    assert run("check_certificate_expiration", "--within", "1", "--unit", "days")[1].endswith("within 1 day.\n")


def test_a_wrong_unit_is_refused_before_any_output(broker, run):
    """An unknown unit is refused before the banner, with the units that there are (CM-15, CM-199)."""
    code, out, err = run("check_certificate_expiration", "--unit", "hours")
    assert (code, out) == (64, "")
    assert "unit 'hours' is not supported. Please use one of: days, weeks, months, years" in err


def served(broker):
    """The certificate with which the broker answers a client."""
    with socket.create_connection(("127.0.0.1", broker.tls_port), 30) as sock:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(sock) as tls:
            return tls.getpeercert(binary_form=True)


def renew(path):
    """Replace the file's certificate by a new one, and return it."""
    certificate = trustme.CA().issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(path)
    return ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())


def test_a_renewed_certificate_is_taken_without_a_restart(tls_broker, run):
    old = served(tls_broker)
    new = renew(tls_broker.certificate)
    assert served(tls_broker) == old
    with pika_over_tls(tls_broker) as connection:
        code, out, err = run("reload_certificates")
        assert (code, err) == (0, "")
        assert "Clients that connect from now on get it" in out
        assert served(tls_broker) == new != old
        connection.channel().queue_declare("goes-on")


def pika_over_tls(broker):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    parameters = pika.URLParameters(broker.tls_url)
    parameters.ssl_options = pika.SSLOptions(context, "localhost")
    return pika.BlockingConnection(parameters)


def test_a_certificate_that_cannot_be_used_leaves_the_old_one(tls_broker, run, caplog):
    old = served(tls_broker)
    tls_broker.certificate.write_text("no certificate")
    code, _, err = run("reload_certificates")
    assert code == 69
    assert err.startswith("Error:\nthe certificate in use stays, because the new one cannot be used: ")
    assert "tls_cert_file" in err
    assert served(tls_broker) == old
    assert "the certificate in use stays" in caplog.text


def test_a_node_without_tls_has_no_certificate_to_reload(broker, run):
    assert run("reload_certificates")[2] == (
        "Error:\nthe node does not listen for TLS; the setting tls_port makes it do so\n"
    )


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal on Windows")
def test_a_signal_has_a_server_reload_its_certificate(tmp_path):
    path, config, log = tmp_path / "cert.pem", tmp_path / "warren.toml", tmp_path / "broker.log"
    renew(path)
    config.write_text(f'port = 0\ntls_port = 0\ntls_cert_file = "{path}"\nlog_file = "{log}"\n')
    command = [WARREN, "start", "--in-memory", "--config", str(config)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/", start_new_session=True)
    try:
        while "stop " not in (line := server.stdout.readline()):
            assert server.poll() is None, line
        path.write_text("no certificate")
        server.send_signal(signal.SIGHUP)
        end = time.monotonic() + 300
        while "the certificate in use stays" not in log.read_text():
            assert time.monotonic() < end
            time.sleep(0.02)
        renew(path)
        server.send_signal(signal.SIGHUP)
        while "the certificate is loaded again" not in log.read_text():
            assert time.monotonic() < end
            time.sleep(0.02)
        assert server.poll() is None
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


# -- the cluster's name ---


def test_the_cluster_name_is_sent_to_clients_and_survives_a_restart(directory, run):
    """Clients receive the cluster's name in the server properties, also after a restart (CM-76)."""
    for is_first in (True, False):
        with Broker(port=0, control_dir=str(directory / "control"), data_dir=str(directory)) as broker:
            if is_first:
                assert run("set_cluster_name", "production") == (0, "Setting cluster name to production ...\n", "")
            connection = pika.BlockingConnection(pika.URLParameters(broker.url))
            assert connection._impl.server_properties["cluster_name"] == "production"
            connection.close()
            assert rows(run, "status")["cluster_name"] == "production"
            assert "Cluster name: production" in run("cluster_status")[1]


def test_a_cluster_needs_a_name(broker, run):
    """An empty name of the cluster is refused (CM-76)."""
    code, _, err = run("set_cluster_name", "")
    assert code == 65
    assert "the cluster name cannot be an empty string" in err


# -- the pace of a queue ---


def test_set_pace_is_a_policy_for_one_queue(broker, run):
    """`set_pace` sets a policy for exactly one queue, and `clear_pace` deletes it (QP-109)."""
    broker.declare_queue("mail.out")
    broker.declare_queue("mail.outgoing")
    assert run("set_pace", "mail.out", "600/m", "--max-wait", "5000", "--overflow", "nack", "--warm-up", "9000") == (
        0,
        "Setting pace of queue 'mail.out' in vhost '/' to 600/m ...\n",
        "",
    )
    [policy] = rows(run, "list_policies")
    assert (policy["name"], policy["priority"], policy["apply-to"]) == ("pace.mail.out", 1000, "queues")
    assert json.loads(policy["definition"]) == {
        "pace-rate": 600,
        "pace-period-ms": 60_000,
        "pace-max-wait-ms": 5000,
        "pace-overflow": "nack",
        "pace-warm-up-ms": 9000,
    }
    paced, other = rows(run, "list_queues", "policy", "pace")
    assert (paced["policy"], paced["pace"]["rate"], paced["pace"]["period_ms"]) == ("pace.mail.out", 600, 60_000)
    assert other == {"policy": "", "pace": ""}
    assert run("clear_pace", "mail.out")[0] == 0
    assert rows(run, "list_policies") == []
    assert run("clear_pace", "mail.out")[2] == "Error:\nno pace is set for queue 'mail.out' in vhost '/'\n"


def test_set_pace_in_a_group(broker, run):
    broker.declare_queue("sms")
    assert run("set_pace", "sms", "30", "--group", "gateway")[0] == 0
    [row] = rows(run, "list_queues", "pace")
    assert (row["pace"]["group"], row["pace"]["scope"]) == ("gateway", "queue")
    run("clear_pace", "sms")
    broker.delete_queue("sms")


def test_set_pace_takes_over_what_the_policy_of_the_queue_defines(broker, run):
    """`set_pace` copies the other settings of the queue's policy into its own. Only one policy applies to a queue, so
    without that they would no longer apply (QP-109).
    """
    broker.declare_queue("mail")
    run("set_policy", "limits", "^mail", '{"max-length":100,"pace-rate":1}')
    for rate in ("50", "2.5/h"):
        _, out, _ = run("set_pace", "mail", rate)
        assert "Policy pace.mail contains what policy limits defines now" in out
    policies = {row["name"]: json.loads(row["definition"]) for row in rows(run, "list_policies")}
    assert policies["pace.mail"] == {"max-length": 100, "pace-rate": 2.5, "pace-period-ms": 3_600_000}


@pytest.mark.parametrize("rate", ["0", "-1", "abc", "5/d", "", "1e3"])
def test_a_wrong_rate_is_refused(broker, run, rate):
    code, out, err = run("set_pace", "mail", "--", rate)
    assert (code, out) == (65, "")
    assert f"'{rate}' is no rate above 0 such as 50, 50/s, 600/m or 9/h" in err


# -- the report ---


def test_the_report_begins_as_status_does(broker, run):
    """A report begins with the sections of `status` (CM-70, CM-75)."""
    _, out, _ = run("report")
    lines = out.splitlines()
    assert lines[:6] == ["Reporting server status of node warren@localhost ...", "", "Runtime", "", lines[4], lines[5]]
    assert lines[4] == f"OS PID: {os.getpid()}"
    assert "Is running: yes" in lines


# -- the end ---


def test_shutdown_reports_the_process_that_ends(tmp_path):
    """`shutdown` prints RabbitMQ's lines with the process id, and returns when the process has ended (CM-43)."""
    server = subprocess.Popen(
        [WARREN, "start", "--port", "0", "--in-memory"], stdout=subprocess.PIPE, text=True, cwd="/"
    )
    try:
        while "stop " not in server.stdout.readline():
            assert server.poll() is None
        ended = subprocess.run([WARREN, "shutdown"], capture_output=True, text=True, timeout=300, cwd="/")
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.stdout.close()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        f"Shutting down RabbitMQ node warren@localhost running at PID {server.pid}",
        f"Waiting for PID {server.pid} to terminate",
        f"RabbitMQ node warren@localhost running at PID {server.pid} successfully shut down",
    ]


# -- errors that name the way out ---


def test_a_definitions_file_that_does_not_exist(broker, run, tmp_path):
    """The error names the file and why it cannot be read (CM-216)."""
    path = tmp_path / "none.json"
    _, _, err = run("import_definitions", str(path))
    assert err == f"Error: the definitions in '{path}' cannot be read: No such file or directory\n"


def test_an_address_without_a_secret(run):
    """`--address` without a secret is exit code 78, and the error says where a secret can come from (CM-14, CM-18)."""
    code, _, err = run("--address", "127.0.0.1:25672", "ping", finds_node=False)
    assert code == 78
    assert "there is no file" in err and "--cookie-file FILE" in err and "WARREN_COOKIE" in err


def test_a_run_file_of_another_user_names_the_owner(tmp_path, monkeypatch):
    """The error for a run file that another user owns names this user. `open` is patched, because the tests may run as
    root, who may read everything (CM-23).
    """

    def refused(path, **_):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("builtins.open", refused)
    with pytest.raises(place.PlaceError) as error:
        place.read_run_file(str(tmp_path / "gone" / "control"))
    assert "cannot be read: Permission denied; " in str(error.value)
    assert f"'{tmp_path}' belongs to user " in str(error.value)


def test_a_run_file_that_cannot_be_read_on_a_system_without_owners(tmp_path, monkeypatch):
    """Where files have no owners, as on Windows, which has no module `pwd`, the error gives the reason alone."""

    def refused(path, **_):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setitem(sys.modules, "pwd", None)
    monkeypatch.setattr("builtins.open", refused)
    with pytest.raises(place.PlaceError, match="cannot be read: Permission denied$"):
        place.read_run_file(str(tmp_path))
