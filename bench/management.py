"""What the HTTP API, the metrics and the page cost.

    python -m warren.bench.management                     all figures
    python -m warren.bench.management --queues 1000

It starts a broker and measures its management process while nothing happens. Then it declares many queues, each with a
message, and measures requests, scrapes, and how a browser loads the page. That needs chromium with its driver, and
selenium; without them the page is left out. A time is the median of `ROUNDS` requests, one every 0.2 s, so that each
has to fetch what has changed. Exit code 0 if every bar holds, 1 if not, 2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..amqp import methods
from ..amqp.frames import build_content, method_frame
from .load.broker import FRAME_MAX, BrokerFailed, LoadClient, Warren, free_port, memory, processor_seconds
from .operators import MANY, FigureRow, declare_queues

#: Requests of one kind, and seconds between two.
ROUNDS, PAUSE = 20, 0.2
#: Seconds over which the processor time of an idle process is measured.
IDLE_SECONDS = 15.0
#: Seconds until statistics must show what was declared.
TIMEOUT = 60.0

MB = 1e6
LOGIN = {"authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


class ManagementBench:
    """Measures one broker, `warren`, whose HTTP API and metrics listen on these ports."""

    def __init__(self, warren: Warren, port: int, metrics_port: int, queues: int) -> None:
        self.warren, self.port, self.metrics_port, self.queues = warren, port, metrics_port, queues

    def figures(self) -> Iterator[FigureRow]:
        self._wait_for("/api/overview", lambda found: True)
        yield from self._idle("an idle broker", 60.0)
        declare_queues(self.warren.address, False, self.queues)
        publish_to_each(self.warren.address, self.queues)
        self._wait_for("/api/overview", lambda found: found["queue_totals"]["messages"] == self.queues)
        many = f"{self.queues:,} queues"
        for name, path, bar in (
            ("`/api/overview`", "/api/overview", 20.0),
            (f"`/api/queues?page=1` of {many}", "/api/queues?page=1", 200.0),
            ("the same, sorted by length", "/api/queues?page=1&sort=messages&sort_reverse=true", 200.0),
            ("the same, by part of a name", "/api/queues?page=1&name=9", 200.0),
            (f"`/api/queues` of {many}, all columns", "/api/queues", 1_000.0),
        ):
            yield FigureRow("requests", name, self._typical(self.port, path) * 1000, "ms", bar)
        for name, path, bar in (
            (f"`/metrics` with {many}", "/metrics", 1_000.0),
            (f"`/metrics/per-object` with {many}", "/metrics/per-object", 1_000.0),
        ):
            yield FigureRow("scrapes", name, self._typical(self.metrics_port, path) * 1000, "ms", bar)
        yield from self._page()
        yield from self._idle(many, 100.0)

    def _idle(self, what: str, most_mb: float) -> Iterator[FigureRow]:
        """The memory and processor time of the management process while nobody asks it for anything."""
        time.sleep(2.0)
        process = management_process(self.warren.pid)
        before = processor_seconds(process)
        time.sleep(IDLE_SECONDS)
        share = (processor_seconds(process) - before) / IDLE_SECONDS * 100
        yield FigureRow("process", f"resident memory with {what}", memory(process)["VmRSS"] / MB, "MB", most_mb)
        yield FigureRow("process", f"of a core with {what}", share, "%", 0.5)

    def _typical(self, port: int, path: str) -> float:
        times = []
        for _ in range(ROUNDS):
            time.sleep(PAUSE)
            began = time.monotonic()
            get(port, path)
            times.append(time.monotonic() - began)
        return statistics.median(times)

    def _wait_for(self, path: str, is_good: Any) -> None:
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                if is_good(json.loads(get(self.port, path))):
                    return
            except (OSError, KeyError):
                pass  # it does not listen yet, or has no sample
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{path} does not show what was declared")
            time.sleep(0.1)

    def _page(self) -> Iterator[FigureRow]:
        """How a browser without a cache loads the overview of a user who is logged in."""
        browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
        if browser is None or driver is None:
            print("no browser, so the page is not measured", file=sys.stderr)
            return
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
            options.add_argument(argument)
        chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            base = f"http://127.0.0.1:{self.port}/"
            chrome.get(base)
            script = (
                "const done = arguments[0]; fetch('/api/login', {method: 'POST', "
                "body: new URLSearchParams({username: 'guest', password: 'guest'})}).then(() => done());"
            )
            chrome.execute_async_script(script)
            chrome.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
            paints, sizes = [], []
            for _ in range(5):
                chrome.execute_cdp_cmd("Network.clearBrowserCache", {})
                chrome.get(base)
                time.sleep(2.0)
                shown = chrome.execute_script("return window.shown")
                if shown is None:
                    raise BrokerFailed("the page does not show the overview within 2 s")
                paints.append(float(shown))
                sizes.append(float(chrome.execute_script(TRANSFERRED)))
        finally:
            chrome.quit()
        yield FigureRow("page", "until the overview is shown", statistics.median(paints), "ms", 1_000.0)
        yield FigureRow("page", "transferred for the first view", max(sizes) / 1000, "KB", 300.0)


#: JavaScript: note when the browser paints the figures of the overview, in ms since the navigation began; return the
#: bytes that it has transferred.
WATCH = """
new MutationObserver((changes, observer) => {
  if (document.querySelector("main .tile .figure")) {
    observer.disconnect();
    requestAnimationFrame(() => { window.shown = performance.now(); });
  }
}).observe(document, {childList: true, subtree: true});
"""
TRANSFERRED = """
const entries = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
return entries.reduce((sum, each) => sum + each.transferSize, 0);
"""


def get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=LOGIN)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"{path}: status {answer.status}")
    return body


def management_process(pid: int) -> int:
    """The process id of the management process of a broker, which is its child."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            if b"warren.management" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise BrokerFailed("the broker has no management process")


def publish_to_each(address: str, count: int) -> None:
    content = build_content(1, b"\x00\x00", bytes(100), FRAME_MAX)
    with LoadClient(address, 300.0) as client:
        for number in range(count):
            publish = methods.BasicPublish(0, "", f"bench.operators.False.{number}", False, False)
            client.write(method_frame(1, publish) + content)
        client.declared(f"bench.operators.False.{count - 1}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m warren.bench.management", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--queues", type=int, default=MANY)
    parser.add_argument("--dir", type=Path, default=None, help="where the broker keeps its data")
    arguments = parser.parse_args()
    port, metrics_port = free_port(), free_port()
    rows = []
    with tempfile.TemporaryDirectory(prefix="warren-management-", dir=arguments.dir) as directory:
        settings = {"management_port": port, "prometheus_port": metrics_port}
        with Warren(Path(directory) / "data", settings, is_silent=True) as warren:
            try:
                warren.start()
                for row in ManagementBench(warren, port, metrics_port, arguments.queues).figures():
                    rows.append(row)
                    mark = "" if row.holds else "  MISSED"
                    print(f"{row.case:9} {row.name:52} {row.figure:9.1f} {row.unit:3} <= {row.bar:g}{mark}", flush=True)
            except (BrokerFailed, OSError) as error:
                print(error, file=sys.stderr)
                return 2
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
