"""`warren top`: its screen, operated by keys, and the command in a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pika
import pytest
from click.testing import CliRunner

from warren import Broker
from warren.cli.main import root
from warren.cli.node_client import Target
from warren.cli.top.app import Top
from warren.cli.top.feed import Feed
from warren.cli.top.figures import CONNECTIONS, PAGES, QUEUES, count, fitting, rate, size, span
from warren.cli.top.table import fitted

WARREN = Path(sys.executable).with_name("warren")

#: Seconds that a test waits for anything; long, because the machine may be slow.
PATIENCE = 300.0


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("node")


@pytest.fixture
def node(data_dir):
    """A broker without a data directory, which commands find through this one."""
    with Broker(port=0, control_dir=str(data_dir / "control")) as broker:
        yield broker


def drive(data_dir, steps, size=(120, 24)):
    """Show the screen of the node without a terminal, and run `steps(app, pilot)` with it."""
    target = Target("warren@localhost", control_dir=str(data_dir / "control"))

    async def main():
        app = Top("warren@localhost", lambda took, lost: Feed(target, 0.2, took, lost))
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.state.node)
            await steps(app, pilot)

    asyncio.run(main())


async def until(pilot, condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        await pilot.pause(0.02)


def screen(app):
    """The lines on the screen."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


def test_the_screen(node, data_dir):
    """Keys choose the page, the order and the filter; a narrow terminal keeps the names."""
    for name, messages in (("few", 1), ("many", 3), ("none", 0), ("odd\x1b[31m", 2)):
        node.declare_queue(name)
        for _ in range(messages):
            node.publish(b"x", name)

    async def steps(app, pilot):
        await until(pilot, lambda: app.state.value("messages") == 6)
        names = lambda: [name for _, name in app.table.keys]  # noqa: E731
        await until(pilot, lambda: names() == ["many", "odd\x1b[31m", "few", "none"])
        await pilot.pause()
        text = "\n".join(screen(app))
        assert "warren@localhost" in text and "4 queues" in text and "Nothing holds a connection back." in text
        assert "odd\\e[31m" in text and "\x1b" not in text
        await pilot.press("r")
        assert names() == ["none", "few", "odd\x1b[31m", "many"]
        await pilot.press("right")
        assert app.table.column.title == "IN/s"
        await pilot.press("slash", "F", "e", "enter")
        assert names() == ["few"]
        await pilot.press("escape", "2")
        assert app.table.page is CONNECTIONS and app.table.keys == []
        await pilot.press("tab", "tab")
        assert app.table.page is QUEUES and len(names()) == 4
        await pilot.click(app.table, offset=(2, 0))
        assert names() == ["few", "many", "none", "odd\x1b[31m"]
        await pilot.resize_terminal(30, 12)
        shown = lambda: "".join([line for line in screen(app) if line.startswith("NAME")])  # noqa: E731
        await until(pilot, lambda: 0 < len(shown()) <= 30)
        assert "READY" in shown() and "NODE" not in shown()
        await pilot.press("space")
        assert app.is_paused

    drive(data_dir, steps)


def test_what_holds_back_is_at_the_top(node, data_dir):
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    node.set_alarm("memory", True)
    connection.channel().basic_publish("", "nowhere", b"x")

    async def steps(app, pilot):
        await until(pilot, lambda: "Resource alarm: low memory on node" in " ".join(screen(app)))
        await until(pilot, lambda: "ALARM: memory" in " ".join(screen(app)))
        await pilot.press("2")
        await until(pilot, lambda: "blocked" in " ".join(screen(app)))

    drive(data_dir, steps)
    node.set_alarm("memory", False)


def test_an_answer_that_comes_while_the_screen_closes_shows_nothing(node, data_dir, monkeypatch):
    """The feed runs in a thread, so an answer, or the end of the node, may arrive at any moment while the screen
    closes. It must not draw on the closed screen.
    """
    handled = []

    def bring_late(app):
        app.take([], False)
        app.lose("it has ended")
        handled.append(app.lost)

    def unmounted(table):
        # Scheduled on the event loop, because the app's own `call_later` drops calls once it has closed.
        asyncio.get_running_loop().call_soon(bring_late, table.app)

    async def steps(app, pilot):
        monkeypatch.setattr(type(app.table), "on_unmount", unmounted, raising=False)

    drive(data_dir, steps)
    assert handled == ["it has ended"]


def test_a_node_that_goes_away_and_comes_back(data_dir):
    """While the node is away, its last figures stay with a line that it does not answer; when it runs again, the
    figures begin anew.
    """
    nodes = [Broker(port=0, control_dir=str(data_dir / "control"))]
    nodes[0].start()
    nodes[0].declare_queue("of the first run")

    async def steps(app, pilot):
        await until(pilot, lambda: ("/", "of the first run") in app.state.queues)
        await asyncio.to_thread(nodes[0].stop)
        await until(pilot, lambda: "The node does not answer" in " ".join(screen(app)))
        assert ("/", "of the first run") in app.state.queues
        nodes.append(Broker(port=0, control_dir=str(data_dir / "control")))
        await asyncio.to_thread(nodes[1].start)
        await until(pilot, lambda: not app.lost and not app.state.queues)
        await until(pilot, lambda: "Nothing holds a connection back." in " ".join(screen(app)))

    try:
        drive(data_dir, steps)
    finally:
        for each in nodes[1:]:
            each.stop()


def test_the_command_in_a_terminal(node, data_dir):
    """`top` draws without colours if NO_COLOR is set, and ends with q."""
    master, slave = pty.openpty()
    environment = {"PATH": "", "TERM": "xterm", "NO_COLOR": "1", "HOME": str(data_dir), "LANG": "C.UTF-8"}
    command = [WARREN, "top", "--data-dir", data_dir, "--interval", "0.2"]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    output, has_quit, deadline = b"", False, time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            try:
                output += os.read(master, 65536)
            except OSError:
                break
        if not has_quit and b"Nothing holds a connection back." in output:
            os.write(master, b"q")
            has_quit = True
    process.kill()
    os.close(master)
    assert process.wait() == 0, output[-2000:]
    assert not re.search(rb"\x1b\[(\d+;)*(3[0-8]|4[0-8]|9[0-7])(;\d+)*m", output)


def test_without_a_terminal(node, data_dir):
    done = CliRunner().invoke(root, ["top", "--data-dir", str(data_dir)])
    assert done.exit_code != 0 and "top needs a terminal" in done.output


def test_columns_and_texts():
    for page in PAGES:
        assert [column.title for column, _ in fitting(page.columns, 10)] == ["NAME"]
        assert len(fitting(page.columns, 500)) == len(page.columns)
        for width in range(1, 200):
            shown = fitting(page.columns, width)
            assert sum(room + 1 for _, room in shown) - 1 == width, (page.title, width)
    assert [fitted("ab", 4, True), fitted("ab", 4, False), fitted("abcdef", 4, True)] == ["ab  ", "  ab", "abc…"]
    assert fitted("日本語", 4, True) == "日 …"
    assert [count(999_999.4), count(999_999.6), count(1_500_000), count(2e9)] == ["999,999", "1.0M", "1.5M", "2.0G"]
    for value in (999_999, 10**6, 9_999_999, 10**9 - 1, 10**13 - 10**8):
        assert len(count(value)) <= next(column.width for column in QUEUES.columns if column.text is count)
    assert [rate(0), rate(2.5), rate(1234), rate(25e6)] == ["0", "2.5", "1,234", "25.0M"]
    assert [size(0), size(2048), size(3 * 1024**3)] == ["0 B", "2.0 KiB", "3.0 GiB"]
    assert [span(5), span(130), span(7300), span(200_000)] == ["5 s", "2 min", "2 h 1 min", "2 d 7 h"]
