"""Output and exit codes of `warren store verify`. The checks themselves are tested in tests/store/verify."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from warren.cli.failure import EX_DATAERR, EX_NOINPUT, EX_TEMPFAIL
from warren.cli.programs import store as command
from warren.store.data_dir.data_dir import claim
from warren.store.data_dir.metadata_store import Change, MetadataStore
from warren.store.index.segment_file import Entries, encode
from warren.store.messages.message import Origin
from warren.store.messages.records import Kind, Type, encode_run, frame, record
from warren.store.messages.run import Run

WARREN = Path(sys.executable).with_name("warren")
SEGMENT = "queues/100/0.idx"


@pytest.fixture
def data_dir(tmp_path):
    """The data directory of a broker that was killed: a queue with a name that is not UTF-8, and in it two messages in
    a segment and one in the journal.
    """
    claimed = claim(str(tmp_path / "data"), "warren@test")
    metadata = MetadataStore(claimed.directory.metadata)
    row = {"queue_id": "00000000000001" + "f" * 18, "auto_delete": False, "type": "classic", "arguments": bytes(4)}
    metadata.apply([Change("vhosts", ("/",), {}), Change("queues", ("/", "orders\udcff"), row)])
    metadata.close()
    vhost = Path(claimed.directory.make_vhost("/"))
    claimed.release()
    for name in ("journal", "queues/100"):
        (vhost / name).mkdir(parents=True)
    messages = [
        Run(first, [bytes(18) + b"\5hello"] * count, Origin("", ("q",), True), None, False, 5 * count)
        for first, count in ((0, 2), (2, 1))
    ]
    (vhost / "config").write_bytes(b"\x40\0")
    (vhost / SEGMENT).write_bytes(b"".join(encode([Entries(messages[0], False)], [], 0)[0]))
    payload = b"".join(record(Type.PUBLISH, 0x100, encode_run(messages[1], False)))
    (vhost / "journal/000001.wal").write_bytes(frame(Kind.RECORDS, payload) + payload)
    return tmp_path / "data"


def vhost_of(data_dir):
    return next((data_dir / "vhosts").iterdir())


def run(*arguments):
    return subprocess.run([WARREN, "store", "verify", *arguments], capture_output=True, text=True, timeout=300, cwd="/")


def test_the_default_output_is_a_table(data_dir):
    result = run(str(data_dir))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[2:7] == [
        f"virtual host /  (vhosts/{vhost_of(data_dir).name}): not stopped cleanly",
        "  queue         ready    bodies  in segments    bodies  in journal   bodies",
        "  orders\\udcff      3  15 bytes            2  10 bytes           1  5 bytes",
        "",
        (
            "  1 queue, 3 messages; message store: 0 files, 0 bytes, live 0 bytes, garbage 0 bytes; "
            "journal: 1 file, 86 bytes"
        ),
    ]
    assert result.stdout.endswith("\nFine: nothing found.\n")


def test_the_formatter_json_prints_all_fields(data_dir):
    result = run(str(data_dir), "--formatter", "json")
    report = json.loads(result.stdout)
    assert (result.returncode, report["result"], report["findings"]) == (0, "fine", [])
    (queue,) = report["vhosts"][0]["queues"]
    assert (queue["name"], queue["messages"], queue["segment_messages"], queue["journal_bytes"]) == (
        "orders\udcff",
        3,
        2,
        5,
    )


def test_damage_is_reported_with_exit_code_65(data_dir):
    segment = vhost_of(data_dir) / SEGMENT
    data = segment.read_bytes()
    segment.write_bytes(data[:20] + b"?" + data[21:] + data)
    result = run(str(data_dir))
    assert (result.returncode, result.stderr) == (EX_DATAERR, "")
    assert (
        f"error: vhosts/{vhost_of(data_dir).name}/{SEGMENT}, byte 0: "
        f"{len(data)} damaged bytes; behind it 1 whole frames with 2 messages" in result.stdout
    )
    assert "\n  next start: when the file is next read, warren rewrites it with its whole" in result.stdout
    assert result.stdout.endswith("\nNot fine: 1 error.\n")
    result = run(str(data_dir), "--formatter", "json")
    assert result.returncode == EX_DATAERR
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["severity"], finding["offset"]) == ("error", 0)


def test_notes_alone_are_fine(data_dir):
    """A torn last frame, which a kill may leave behind, is a note and no damage, so the exit code is 0 (C-11)."""
    with open(vhost_of(data_dir) / SEGMENT, "ab") as file:
        file.write(b"\x57\1torn")
    result = run(str(data_dir))
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "Fine: 1 note.")


def test_the_reason_for_no_check_goes_to_standard_error(data_dir, tmp_path):
    result = run(str(tmp_path / "gone"))
    assert (result.returncode, result.stdout) == (EX_NOINPUT, "")
    assert f"there is no directory '{tmp_path / 'gone'}'" in result.stderr
    held = claim(str(data_dir), "warren@other")
    result = run(str(data_dir))
    held.release()
    assert (result.returncode, result.stdout) == (EX_TEMPFAIL, "")
    assert "is in use by warren@other" in result.stderr


def test_a_long_check_shows_a_bar_on_a_terminal(data_dir):
    script = (
        f"import sys; sys.argv[1:] = ['store', 'verify', {str(data_dir)!r}]\n"
        "from warren.cli import main; from warren.cli.programs import store; store.PROGRESS_FROM = 1; main()"
    )
    terminal, screen = pty.openpty()
    result = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=screen, timeout=300, cwd="/")
    assert result.returncode == 0 and b"Fine" in result.stdout
    assert b"verifying" in os.read(terminal, 10_000)
    os.close(terminal)
    os.close(screen)


def test_a_pipe_gets_no_bar(data_dir, monkeypatch):
    monkeypatch.setattr(command, "PROGRESS_FROM", 1)
    result = CliRunner().invoke(command.store, ["verify", str(data_dir)])
    assert (result.exit_code, result.stderr) == (0, "")


def test_long_tables_show_only_the_first_rows(data_dir, monkeypatch):
    monkeypatch.setattr(command, "SHOWN_MOST", 1)
    metadata = MetadataStore(str(data_dir / "metadata"))
    row = {"queue_id": "00000000000002" + "f" * 18, "auto_delete": False, "type": "classic", "arguments": bytes(4)}
    metadata.apply([Change("queues", ("/", "empty"), row)])
    metadata.close()
    (vhost_of(data_dir) / "queues/200").mkdir()
    result = CliRunner().invoke(command.store, ["verify", str(data_dir)])
    assert "orders" in result.stdout and "and 1 smaller ones" in result.stdout and "empty" not in result.stdout
