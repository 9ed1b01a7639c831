"""`warren start` as a process: start-up report, signals, exit codes and error texts."""

import os
import pty
import re
import resource
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pika
import pika.exceptions
import pytest
import trustme

from warren import Broker
from warren.store.data_dir.data_dir import DataDir

WARREN = Path(sys.executable).with_name("warren")


def warren(*arguments):
    return subprocess.run([WARREN, *arguments], capture_output=True, text=True, timeout=300, cwd="/")


@contextmanager
def started(*arguments):
    """Run `warren start --port 0`, and yield the process and its port. `process.report` is its start-up report."""
    command = [WARREN, "start", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/") as process:
        try:
            process.report = ""
            while "stop " not in process.report:
                line = process.stdout.readline()
                assert line, process.stderr.read()
                process.report += line
            yield process, int(re.search(r"listening\s+\S+:(\d+) ", process.report)[1])
        finally:
            process.kill()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a file that is always full")
def test_a_broker_whose_report_cannot_be_written_runs(tmp_path):
    """A full disk below the standard output, such as the log of a broker in the background, does not end the broker."""
    command = [WARREN, "start", "--port", "0", "--no-management", "--data-dir", str(tmp_path)]
    with (
        open("/dev/full", "wb") as full,
        subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd="/") as process,
    ):
        try:
            for line in process.stderr:
                if "the start-up report cannot be written to the standard output: No space left on device" in line:
                    break
            assert warren("--data-dir", str(tmp_path), "ping").returncode == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_warren_alone_prints_help_to_a_person():
    """`warren` alone, on a terminal, prints help and exits with 0 (CM-4)."""
    terminal, screen = pty.openpty()
    with subprocess.Popen([WARREN], stdout=screen, stderr=subprocess.PIPE, cwd="/") as warren_alone:
        os.close(screen)
        shown = b""
        # A terminal buffers less than the help, so warren would wait for ever if nobody read it. When warren has ended,
        # Linux reports the end of the terminal as an error.
        with suppress(OSError):
            while read := os.read(terminal, 10_000):
                shown += read
        assert warren_alone.wait(30) == 0
    assert b"warren start" in shown
    os.close(terminal)


def test_warren_alone_is_an_error_to_a_script():
    """`warren` alone, in a pipe, prints its usage on standard error and exits with 64, as rabbitmqctl does (CM-4)."""
    result = warren()
    assert (result.returncode, result.stdout) == (64, "")
    assert "warren start" in result.stderr


def test_python_m_warren_is_the_same_command():
    """`python -m warren` works in environments whose scripts are not on the path."""
    module = subprocess.run(
        [sys.executable, "-m", "warren", "start", "--help"], capture_output=True, text=True, timeout=300, cwd="/"
    )
    assert (module.returncode, module.stdout) == (0, warren("start", "--help").stdout)


def test_version_prints_only_the_version():
    """`--version` prints the version and nothing else (CM-5)."""
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", warren("--version").stdout)


def test_an_unknown_command_is_wrong_use():
    result = warren("strat")
    assert result.returncode == 64
    assert "strat" in result.stderr


def test_the_report_names_address_url_and_how_to_stop():
    with started() as (process, port):
        assert f"amqp://guest:guest@127.0.0.1:{port}/%2F" in process.report
        assert f"process {process.pid}" in process.report


def test_the_report_names_the_port_for_tls(tmp_path):
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "cert.pem")
    config = tmp_path / "warren.toml"
    config.write_text(f"tls_port = 0\ntls_cert_file = '{tmp_path / 'cert.pem'}'\n")
    with started("--config", str(config)) as (process, port):
        tls_port = int(re.search(r"with TLS\s+127.0.0.1:(\d+) \(AMQP 0-9-1\)", process.report)[1])
        assert tls_port != port
        assert f"amqps://guest:guest@127.0.0.1:{tls_port}/%2F" in process.report


def test_a_certificate_that_cannot_be_read_ends_the_start_with_one_line(tmp_path):
    config = tmp_path / "warren.toml"
    config.write_text("port = 0\ntls_port = 0\ntls_cert_file = '/nowhere/cert.pem'\n")
    result = warren("start", "--config", str(config))
    assert result.returncode == 70
    assert (
        "setting 'tls_cert_file' is '/nowhere/cert.pem': it cannot be read: No such file or directory" in result.stderr
    )
    assert "Traceback" not in result.stderr


def test_the_report_has_the_memory_watermark(tmp_path):
    """The report says above how much memory publishers are blocked (queue-and-store section 8.1)."""
    config = tmp_path / "warren.toml"
    config.write_text('vm_memory_high_watermark = 0.5\ntotal_memory_available_override_value = "3GiB"\n')
    with started("--config", config) as (process, _port):
        assert re.search(r"memory +publishers are blocked above 1\.5 GiB of 3 GiB\n", process.report)


def test_the_report_names_a_virtual_host_that_is_down(tmp_path):
    """A virtual host that cannot be opened is named in the report, with the reason in the log, and the others are
    served. Once the cause is removed, its messages are there.
    """
    data_dir = tmp_path / "data"
    with Broker(data_dir=str(data_dir)) as broker:
        for name in ("orders", "other"):
            broker.create_vhost(name)
            broker.declare_queue("q", durable=True, vhost=name)
            broker.publish("kept", "q", delivery_mode=2, vhost=name)
    journal = Path(DataDir(str(data_dir)).vhost("orders")) / "journal"
    journal.rename(tmp_path / "away")
    journal.write_text("in the way")
    with started("--data-dir", str(data_dir)) as (process, _):
        assert re.search(
            r"^  DOWN +vhost 'orders' cannot be opened; the log has the reason\.", process.report, re.MULTILINE
        )
        assert "'other'" not in process.report
        process.terminate()
        assert "vhost 'orders' cannot use" in process.communicate(timeout=300)[1]
    journal.unlink()
    (tmp_path / "away").rename(journal)
    with started("--data-dir", str(data_dir)) as (process, _):
        assert "DOWN" not in process.report
    with Broker(data_dir=str(data_dir)) as broker:
        assert broker.queue("q", vhost="orders").messages == 1


def test_the_log_has_the_number_of_recovered_vhosts_and_queues(tmp_path):
    """The log says how many virtual hosts and queues were recovered, or that the data directory is new."""
    data_dir = str(tmp_path / "data")
    for line in (f"data directory '{data_dir}' is new\n", f"recovered from '{data_dir}': 1 vhost, 2 queues\n"):
        with started("--data-dir", data_dir) as (process, _):
            process.terminate()
            assert line in process.communicate(timeout=300)[1]
        with Broker(data_dir=data_dir) as broker:
            for name in ("a", "b"):
                broker.declare_queue(name, durable=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_the_broker_cleanly(number):
    """A signal stops the broker cleanly: clients receive connection.close 320, and the exit code is 0 (CM-35)."""
    with started() as (process, port):
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        process.send_signal(number)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            while True:
                connection.process_data_events(time_limit=5)
        assert caught.value.reply_code == 320
        assert process.wait(60) == 0


def test_a_second_signal_ends_the_broker_at_once(tmp_path):
    """A client that does not answer delays a clean stop by up to `stop_timeout`; a second signal ends that wait."""
    config = tmp_path / "slow.toml"
    config.write_text("stop_timeout = 60000\n")
    with started("--config", config) as (process, port):
        silent = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        process.terminate()
        wait_for_line(process.stderr, "stopping on SIGTERM")
        process.terminate()
        assert process.wait(60) == 130
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            silent.close()


def test_systemd_may_send_a_hangup_after_the_signal_that_stops(tmp_path):
    """SIGHUP right after SIGTERM, as systemd sends it with `SendSIGHUP=yes`, does not cut the clean stop short."""
    config = tmp_path / "slow.toml"
    config.write_text("stop_timeout = 1000\n")
    with started("--config", config) as (process, port):
        silent = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        process.terminate()
        wait_for_line(process.stderr, "stopping on SIGTERM")
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            silent.close()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM])
def test_signals_without_a_meaning_do_not_kill(number):
    with started() as (process, port):
        process.send_signal(number)
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            connection.channel().queue_declare("q")
        assert process.poll() is None


def test_nohup_keeps_the_broker_running():
    """A broker that was started with SIGHUP ignored goes on ignoring it."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with started() as (process, port):
            process.send_signal(signal.SIGHUP)
            with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
                connection.channel().queue_declare("q")
            assert process.poll() is None
    finally:
        signal.signal(signal.SIGHUP, previous)


def wait_for_line(stream, text):
    for line in stream:
        if text in line:
            return
    raise AssertionError(f"no line with {text!r}")


def test_the_error_for_a_taken_port_names_the_process_that_holds_it():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = warren("start", "--port", str(taken.getsockname()[1]))
    assert result.returncode == 70
    assert "in use" in result.stderr
    assert re.search(r"in use by \S+.* \(process \d+\)", result.stderr)
    assert "Traceback" not in result.stderr


def test_an_address_of_another_machine_is_refused():
    result = warren("start", "--host", "192.0.2.1", "--port", "0")
    assert result.returncode == 70
    assert "no such address" in result.stderr


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_confirmed_messages_survive_a_stop_and_a_kill(tmp_path, end):
    """Messages that were confirmed survive a stop and a kill, without any repair of the data directory
    (QS-37, QS-41).
    """
    body, large = b"small", b"x" * 10_000
    persistent = pika.BasicProperties(delivery_mode=2)
    with started("--data-dir", tmp_path) as (process, port):
        channel = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)).channel()
        channel.confirm_delivery()
        channel.queue_declare("kept", durable=True)
        for content in (body, large):
            channel.basic_publish("", "kept", content, persistent)
        process.send_signal(end)
        assert process.wait(60) == (0 if end == signal.SIGTERM else -signal.SIGKILL)
    with started("--data-dir", tmp_path) as (_process, port):
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            channel = connection.channel()
            assert [channel.basic_get("kept", auto_ack=True)[2] for _ in range(3)] == [body, large, None]


def kept(process):
    """The line of the report that says where messages are kept."""
    return re.search(r"^  messages +(.*)$", process.report, re.MULTILINE)[1]


def test_the_default_data_directory_is_in_the_home_directory(home):
    with started() as (process, _port):
        assert (
            kept(process)
            == f"durable data is kept in {home}/.local/share/warren/warren@localhost; --in-memory keeps nothing"
        )
    assert (home / ".local/share/warren/warren@localhost/metadata").is_dir()


def test_xdg_data_home_and_the_node_name_set_the_default_data_directory(home, tmp_path, monkeypatch):
    """A relative XDG_DATA_HOME is ignored, and a slash in the node name is replaced."""
    config = tmp_path / "warren.toml"
    config.write_text('node_name = "shop/eu@host"\n')
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    with started("--config", config) as (process, _port):
        assert kept(process).startswith(f"durable data is kept in {tmp_path}/xdg/warren/shop_eu@host;")
    monkeypatch.setenv("XDG_DATA_HOME", "xdg")
    with started() as (process, _port):
        assert kept(process).startswith(f"durable data is kept in {home}/.local/share/")


def test_in_memory_nothing_is_written(home, tmp_path):
    expected = "kept in memory only and lost when the broker stops; --data-dir DIR keeps durable data"
    with started("--in-memory") as (process, _port):
        assert kept(process) == expected
    config = tmp_path / "warren.toml"
    config.write_text("data_dir = false\n")
    with started("--config", config) as (process, _port):
        assert kept(process) == expected
    assert not home.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the limits of another process")
def test_it_asks_the_system_for_more_open_files():
    """A shell allows a program 1,024 open files, so without a higher limit the thousandth client would wait
    for ever.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        with started("--in-memory") as (process, _):
            (line,) = [each for each in Path(f"/proc/{process.pid}/limits").open() if "open files" in each]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert int(line.split()[3]) == min(65_536, before[1])


def test_options_override_the_data_directory_of_the_config_file(home, tmp_path):
    config = tmp_path / "warren.toml"
    config.write_text(f"data_dir = '{tmp_path}/filed'\n")
    with started("--config", config) as (process, _port):
        assert kept(process).startswith(f"durable data is kept in {tmp_path}/filed;")
    with started("--config", config, "--data-dir", tmp_path / "given") as (process, _port):
        assert kept(process).startswith(f"durable data is kept in {tmp_path}/given;")
    with started("--config", config, "--in-memory") as (process, _port):
        assert "memory only" in kept(process)
    assert not home.exists()


def test_in_memory_with_a_data_directory_is_wrong_use(tmp_path):
    result = warren("start", "--in-memory", "--data-dir", str(tmp_path / "data"))
    assert result.returncode == 64
    assert "--in-memory and --data-dir contradict each other" in result.stderr
    assert not (tmp_path / "data").exists()


def test_a_second_broker_on_a_data_directory_is_refused(home):
    """A second broker on the data directory of a running one is refused, with the name and process of the first one and
    the way out (CM-36).
    """
    with started() as (process, _port):
        result = warren("start", "--port", "0")
        assert result.returncode == 78
        assert (
            f"data directory '{home}/.local/share/warren/warren@localhost' is in use "
            f"by warren@localhost (process {process.pid} on " in result.stderr
        )
        assert result.stderr.endswith(
            "Stop that broker, or choose another data_dir for this one. "
            "On the command line, use --data-dir DIR, or --in-memory to keep nothing\n"
        )
        with started("--in-memory"):
            pass


@pytest.mark.parametrize(
    "spoil",
    [lambda path: path.touch(), lambda path: path.mkdir() or (path / "letter.txt").touch(), lambda path: newer(path)],
)
def test_the_error_names_a_data_directory_that_cannot_be_used(tmp_path, spoil):
    spoil(tmp_path / "given")
    result = warren("start", "--data-dir", str(tmp_path / "given"))
    assert result.returncode == 78
    assert str(tmp_path / "given") in result.stderr
    assert "On the command line, use --data-dir DIR" in result.stderr
    assert "Traceback" not in result.stderr


def newer(path):
    path.mkdir()
    (path / "format").write_text("warren data directory\nformat 99\n")


def test_a_user_without_a_home_directory_must_choose_a_data_directory(monkeypatch):
    monkeypatch.delenv("HOME")
    script = (
        "import os, sys; os.getuid = lambda: 4_000_000_000; sys.argv[1:] = ['start', '--port', '0']\n"
        "from warren.cli.main import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, cwd="/")
    assert (result.returncode, result.stdout) == (78, "")
    assert (
        result.stderr == "Error: there is no default data directory, because this user has no home directory: "
        "use --data-dir DIR, or --in-memory to keep nothing\n"
    )


def test_the_error_for_a_wrong_setting_has_file_line_and_nearest_key(tmp_path):
    config = tmp_path / "warren.toml"
    config.write_text("heartbeat = 10\nframe_maxx = 8192\n")
    result = warren("start", "--config", str(config))
    assert result.returncode == 78
    assert f"{config}, line 2: unknown setting 'frame_maxx'; did you mean 'frame_max'?" in result.stderr


def test_a_missing_config_file_is_an_error(tmp_path):
    result = warren("start", "--config", str(tmp_path / "none.toml"))
    assert result.returncode == 78
    assert "No such file" in result.stderr


def test_settings_of_the_file_take_effect(tmp_path):
    config = tmp_path / "warren.toml"
    config.write_text("frame_max = 8192\nheartbeat = 7\n")
    with started("--config", config) as (_process, port):
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        tuned = connection._impl.params
        assert (tuned.frame_max, tuned.heartbeat) == (8192, 7)
        connection.close()


def test_the_environment_says_where_the_node_is(monkeypatch, tmp_path):
    """The environment variables that tell commands where the node is tell `start` the same. A setting in the file
    overrides them.
    """
    monkeypatch.setenv("WARREN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("WARREN_NODENAME", "hare")
    with started():
        status = warren("status")
        assert f"Node data directory: {tmp_path}/data\n" in status.stdout, status.stderr
        assert "Node name: hare@" in status.stdout
    config = tmp_path / "warren.toml"
    config.write_text(f'data_dir = "{tmp_path}/other"\n')
    with started("--config", str(config)):
        assert "Node name: hare@" in warren("status", "--data-dir", f"{tmp_path}/other").stdout
