"""docs/cluster.md, followed by an operator: every command line in it runs, in order, with the files that it shows."""

import re
import subprocess
import sys
from pathlib import Path

from warren import Settings
from warren.tests.cluster_system.link_proxy import free_ports

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cluster.md").read_text()
WARREN = Path(sys.executable).with_name("warren")

#: The files that the page shows, by the name before each.
FILES = dict(re.findall(r"`([\w.]+\.toml)`[^\n]*:\n\n```toml\n(.*?)```", PAGE, re.DOTALL))
LINES = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line.strip()
]


#: A process that ends the nodes in the background when the test has ended, even if the test was killed: the pipe to its
#: standard input is closed then.
WATCHER = """
import json, os, pathlib, signal, sys
sys.stdin.read()
for path in pathlib.Path(sys.argv[1]).glob("*/control/node.json"):
    try:
        os.kill(json.loads(path.read_text())["pid"], signal.SIGKILL)
    except (OSError, ValueError):
        pass
"""


def test_every_command_line_of_the_page_runs(tmp_path, monkeypatch):
    """Every command line of the page runs. The nodes take free ports, because those of the page may be taken."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "WARREN_DATA_DIR", "WARREN_NODENAME", "WARREN_COOKIE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{WARREN.parent}:/usr/bin:/bin")
    names = ("warren1.toml", "warren2.toml", "warren3.toml")
    written = sorted(set(re.findall(r"\b\d{4,5}\b", "".join(FILES[name] for name in names))))
    ports = dict(zip(written, map(str, free_ports(len(written))), strict=True))
    assert len(ports) == 6
    for name in names:
        text = re.sub(r"\b\d{4,5}\b", lambda found: ports[found[0]], FILES[name])
        # A node that stands still for a moment, because the machine is busy, must not count as lost.
        (tmp_path / name).write_text(f"net_ticktime = 20.0\n{text}")

    def run(line):
        return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=500, cwd=tmp_path)

    assert len(LINES) > 12
    watcher = subprocess.Popen([sys.executable, "-c", WATCHER, str(tmp_path)], stdin=subprocess.PIPE)
    try:
        for line in LINES:
            result = run(line)
            assert result.returncode == 0, f"{line}\n{result.stdout}{result.stderr}"
    finally:
        for number in (1, 2, 3):
            run(f"warren --data-dir warren{number} stop --idempotent")
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait(60)


def test_the_file_for_three_machines_is_one(tmp_path):
    """The file for three machines is accepted, and its settings have the values that the page gives."""
    path = tmp_path / "node.toml"
    path.write_text(FILES["node.toml"])
    settings = Settings.from_toml(path)
    assert settings.node_name == "warren@alpha"
    assert settings.cluster_port == 25672
    assert list(settings.cluster_formation["nodes"]) == ["warren@alpha", "warren@beta", "warren@gamma"]
