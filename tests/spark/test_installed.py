"""The README's section about Spark works as it is written, with the package installed from a wheel."""

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "README.md").read_text().partition("## Five minutes with Spark")[2].partition("\n## ")[0]

pytestmark = pytest.mark.timeout(900)

#: With the wheel installed, Spark finds the format by itself. An editable install would need `register`.
FINDS = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.read.format("warren").options(url="amqp://h/", queue="q").load().columns[:3])
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The environment variables of a program that imports warren from the content of its wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT]
    subprocess.run(list(map(str, command)), check=True, cwd=folder, timeout=300)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    # The packages of the tests, without the file that adds the clone's editable install to the path.
    packages = sysconfig.get_paths()["purelib"]
    for entry in Path(packages).iterdir():
        if entry.suffix != ".pth" and "warren" not in entry.name and not (folder / "site" / entry.name).exists():
            (folder / "site" / entry.name).symlink_to(entry)
    return {**os.environ, "PYTHONPATH": str(folder / "site"), "PYTHONNOUSERSITE": "1", "PYSPARK_PYTHON": base_python()}


def base_python():
    """A Python interpreter without the packages of the tests."""
    return str(Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"))


def run(environment, folder, code):
    (folder / "program.py").write_text(code)
    command = [base_python(), "program.py"]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_five_minutes_with_spark(installed, tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    shown = run(installed, tmp_path, code.replace("Broker(", "Broker(port=0, ") + "\n" + FINDS).splitlines()
    promised = re.findall(r"^\s*print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert [line for line in shown if line in promised] == promised
    assert any("44100.0" in line for line in shown)
    assert shown[-1] == "['queue', 'seq', 'exchange']"
