"""The wheel contains the package and nothing else, and starts a broker with its declared dependencies alone.

The tests build it from a copy of the repository in `build.42`, a folder name that no package can have, because the
folder of an unpacked archive may have such a name.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_PACKAGED = {"tests", "docs", "bench", "build", "dist"}

# Each test installs into a new environment.

HANDSHAKE = """
import socket
from warren import Broker

with Broker(port=0) as broker, socket.create_connection((broker.host, broker.port), 5) as client:
    client.settimeout(60)
    client.sendall(b"AMQP\\x00\\x00\\x09\\x01")
    head = client.recv(7, socket.MSG_WAITALL)
    size = int.from_bytes(head[3:7], "big")
    payload = client.recv(size + 1, socket.MSG_WAITALL)
    assert head[:3] == b"\\x01\\x00\\x00", head               # a method frame on channel 0
    assert payload[:6] == b"\\x00\\x0a\\x00\\x0a\\x00\\x09", payload  # connection.start, version 0-9
    assert payload[-1] == 0xCE
print("answered")
"""


def run(*command, **options):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def clean_environment():
    """The environment variables, without those that lead to modules of the environment in which these tests run."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "PIP_"))}


def new_environment(folder, *packages):
    """Make an environment in `folder` and install packages into it, with the pip of the tests: another pip takes
    seconds.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-compile", *packages, env=clean_environment(), cwd=folder)
    return python


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source") / "build.42"
    ignored = shutil.ignore_patterns(
        ".git", ".venv", "build", "*.egg-info", "__pycache__", "node_modules", ".*_cache", ".hypothesis"
    )
    shutil.copytree(ROOT, folder, ignore=ignored)
    return folder


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    target = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", target, source, cwd=target)
    (built,) = target.glob("*.whl")
    return built


def test_the_wheel_contains_the_package_and_nothing_else(wheel):
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    modules = {f"warren/{path.relative_to(ROOT)}" for path in ROOT.rglob("*.py")}
    expected = {
        name for name in modules if name.split("/")[1] not in NOT_PACKAGED and not name.split("/")[1].startswith(".")
    }
    # Spark looks for a top-level module of this name.
    moved = expected - {"warren/spark/pyspark_warren/__init__.py"} | {"pyspark_warren/__init__.py"}
    served = [ROOT / "management" / folder for folder in ("page", "download")]
    found = [path for each in served for path in each.rglob("*.*") if "__pycache__" not in path.parts]
    page = {f"warren/{path.relative_to(ROOT)}" for path in found}
    assert {"warren/management/page/views/overview.js", "warren/management/download/warrenadmin.py"} <= page
    assert set(names) == moved | page | {"warren/py.typed"}


def test_an_installed_wheel_starts_a_broker_that_answers(wheel, tmp_path):
    """An environment with the packages of install_requires and no extras runs a broker that answers (CM-2)."""
    python = new_environment(tmp_path / "env", wheel)
    assert run(python, "-c", HANDSHAKE, cwd=tmp_path, env=clean_environment()).strip() == "answered"
    for name in ("warren", "warrenctl", "warren-diagnostics", "warren-queues"):
        assert run(python.with_name(name), "--version", cwd=tmp_path, env=clean_environment()).strip() in wheel.name


def test_an_editable_install_of_a_clone_with_any_name(source, tmp_path):
    """An editable install uses the clone itself, with its folders at every depth, whatever the clone's folder is
    called.
    """
    python = new_environment(tmp_path / "env", "--no-deps", "-e", source)
    found = run(
        python,
        "-c",
        "import warren.amqp.frames as f, warren.settings; print(f.__file__)",
        cwd=tmp_path,
        env=clean_environment(),
    )
    assert found.strip() == str(source / "amqp" / "frames.py")
