"""The settings of a session: it chooses Java's garbage collector unless somebody else has, because Java does not start
with two; and its sockets are in a folder that only the user may enter.
"""

import stat

import pytest

from warren.spark.sessions import _is_collector_chosen, _sockets


@pytest.fixture(autouse=True)
def no_options(monkeypatch):
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_nobody_has_chosen_one(monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx1g")
    assert not _is_collector_chosen({"spark.driver.extraJavaOptions": "-Dx=y"})


@pytest.mark.parametrize("name", ["extra", "default"])
def test_a_setting_names_one(name):
    assert _is_collector_chosen({f"spark.driver.{name}JavaOptions": "-Xmx1g -XX:+UseZGC"})


def test_the_environment_names_one(monkeypatch):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseG1GC")
    assert _is_collector_chosen({})


def test_a_file_of_settings_names_one(monkeypatch, tmp_path):
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions -XX:+UseShenandoahGC\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert _is_collector_chosen({})


def test_sockets_are_for_the_user_alone(monkeypatch, tmp_path):
    cache = tmp_path / "c"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    folder = cache / "warren" / "sockets"
    folder.mkdir(0o777, parents=True)
    found = _sockets() if len(str(folder)) < 58 else None
    monkeypatch.setenv("XDG_CACHE_HOME", f"{cache}/{'long' * 20}")
    # The system refuses the path of a socket that is too long, so such a session uses the network.
    assert _sockets() == {}
    if found is not None:
        assert found["spark.python.unix.domain.socket.dir"] == str(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
