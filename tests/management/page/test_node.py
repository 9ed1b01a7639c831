"""The page of a node: its charts, memory, alarms, links, settings and log."""

import logging
import re
from urllib.parse import quote

import pytest

from warren import Broker

from ..conftest import ports
from .conftest import Screen

Select = pytest.importorskip("selenium.webdriver.support.ui", reason="needs selenium, from the extra 'test'").Select


@pytest.fixture
def name(broker):
    return broker.settings.node_name


def test_the_overview_leads_to_a_node(screen, name):
    screen.until(lambda: [each for each in screen.all("main a") if each.text == name and screen.hit(each)])
    screen.shows(name, "h1")
    assert screen.text("nav a[aria-current]") == "Overview"
    screen.until(lambda: "running" in screen.text(".pairs"))


def test_a_node_shows_live_figures(screen, broker, name):
    """A node has charts of its figures, and its counters follow what the broker does (CM-391)."""
    screen.go(f"#/nodes/{name}")
    # There is no chart of free disk space, because this broker has no data directory.
    titles = ["Memory", "Descriptors and processes", "Disk traffic", "Message store", "Runtime"]
    screen.until(lambda: [each for each in screen.texts("figcaption") if each] == titles)
    screen.until(lambda: screen.all(".line.series-0"))
    pairs = "Queues declared"
    screen.until(lambda: pairs in screen.text("main"))
    before = broker._node.operate("status")["totals"]["queue_count"]
    for number in range(3):
        broker.declare_queue(f"seen at the node {number}")
    screen.until(lambda: f"Queues created\n{before + 3} " in screen.text("main"))


def test_a_node_with_a_data_directory_shows_its_journal(driver, tmp_path):
    with Broker(
        data_dir=tmp_path, management=True, management_port=0, prometheus_port=0, management_interval=100
    ) as broker:
        driver.delete_all_cookies()
        screen = Screen(driver, ports(broker)["http"])
        screen.open()
        screen.go(f"#/nodes/{quote(broker.settings.node_name)}")
        wanted = {"Free disk space", "File operations", "Journal commits", "Time of a journal commit"}
        screen.until(lambda: wanted <= {each for each in screen.texts("figcaption") if each})
        broker.declare_queue("kept", durable=True)
        broker.publish(b"x", "kept", delivery_mode=2)
        screen.until(lambda: re.search(r"Journal commits\n[1-9]", screen.text("main")))
        screen.until(lambda: re.search(r"Messages in them\n1 ", screen.text("main")))
        assert screen.complaints() == []
        # Leave the page before this broker ends, and drop its requests, which the fixture `screen` would report as made
        # to another host.
        driver.get("about:blank")
        screen.requests()


def test_memory_is_measured_on_opening_and_on_demand(screen, name):
    """The page of a node measures its memory by category when it is opened, and again on demand (CM-391)."""
    screen.go(f"#/nodes/{name}")
    table = '[aria-label="Memory by category"] tbody'
    screen.until(lambda: "other system" in screen.text(table) and "code" in screen.text(table))
    screen.shows("measured at", "main")
    screen.driver.execute_script(
        "document.querySelector('[aria-label=\"Memory by category\"] tbody tr td').id = 'kept';"
        "for (const each of document.querySelectorAll('.summary'))"
        "  if (each.textContent.startsWith('measured at')) each.textContent = 'before';"
    )
    screen.press("Measure again")
    screen.shows("measured at", "main")
    assert screen.all("#kept"), "the rows of the table are changed, not replaced"


def test_an_alarm_is_shown_at_its_node(screen, broker, name):
    screen.go(f"#/nodes/{name}")
    screen.until(lambda: "running" in screen.text(".pairs"))
    broker._node.operate("set_vm_memory_high_watermark", value=0.0)
    try:
        screen.shows("The memory in use is above its limit.", ".cause")
        screen.find(".pairs .meter.alarm")
    finally:
        broker._node.operate("set_vm_memory_high_watermark", value=0.4)
    screen.until(lambda: not screen.all(".cause") and not screen.all(".meter.alarm"))


def test_settings_are_shown_with_their_origins(screen, name):
    """An administrator sees the settings of a node with their values and origins, on demand only those that were set
    (CM-411).
    """
    screen.go(f"#/nodes/{name}")
    screen.unfold("Settings")
    screen.press("Show settings")
    rows = '[aria-label="Settings"] tbody tr'
    screen.until(lambda: any("heartbeat" in each for each in screen.texts(rows)))
    everything = len(screen.all(rows))
    screen.click("details .check input")
    screen.until(lambda: 0 < len(screen.all(rows)) < everything)
    assert "management_interval 100 set" in screen.texts(rows)


def test_the_log_is_live_and_filtered(screen, broker, name, caplog):
    """An administrator sees the newest lines of a node's log as they are written, filtered by level and
    text (CM-411).
    """
    caplog.set_level(logging.INFO, "warren")
    log = logging.getLogger("warren.page")
    log.info("shown <script>alert(1)</script>")
    screen.go(f"#/nodes/{name}")
    screen.unfold("Log")
    rows = '[aria-label="Log"] tbody tr'

    def texts():
        return screen.texts(f"{rows} td.wrap")

    screen.until(lambda: "shown <script>alert(1)</script>" in texts())
    log.warning("a line that comes later")
    screen.until(lambda: "a line that comes later" in texts())
    assert texts().index("a line that comes later") < texts().index("shown <script>alert(1)</script>")
    screen.find('[aria-label="Filter the log by text"]').send_keys("COMES later")
    screen.until(lambda: texts() == ["a line that comes later"])
    Select(screen.find('[aria-label="Lowest level"]')).select_by_value("error")
    screen.until(lambda: texts() == [])
    Select(screen.find('[aria-label="Lowest level"]')).select_by_value("info")
    screen.until(lambda: texts() == ["a line that comes later"])
    screen.find('[aria-label="Filter the log by text"]').clear()


def test_a_node_that_does_not_exist(screen):
    screen.go("#/nodes/nosuch%40host")
    screen.shows("Not Found. It may have been deleted.", "main .problem")


@pytest.mark.parametrize(("tag", "has"), [("monitoring", False), ("administrator", True)])
def test_administrators_alone_are_offered_the_settings(driver, api, broker, name, tag, has):
    broker.add_user(f"node-{tag}", "secret", tags=[tag])
    driver.delete_all_cookies()
    screen = Screen(driver, api.port)
    screen.open(f"node-{tag}", "secret")
    screen.go(f"#/nodes/{name}")
    screen.until(lambda: "running" in screen.text(".pairs"))
    assert bool(screen.all("details.section")) == has
    assert screen.complaints() == []


def test_a_user_without_the_tag_monitoring_gets_the_overview(driver, api, broker, name):
    broker.add_user("no-monitor", "secret", tags=["management"])
    driver.delete_all_cookies()
    screen = Screen(driver, api.port)
    screen.open("no-monitor", "secret")
    screen.go(f"#/nodes/{name}")
    screen.shows("Overview", "h1")
    assert screen.complaints() == []


def test_links_of_a_cluster_are_listed(screen):
    """The table of links shows state, address, round trip, traffic, unsent bytes and last error of each. It is given a
    made-up link, because a broker without a cluster has none (CM-391).
    """
    screen.driver.execute_async_script(
        "const [done] = arguments; import('./views/node.js').then(({linkTable}) => {"
        "  const table = linkTable(); table.update([{name: '<b>@h', state: 'up', peer_addr: '::1', peer_port: 5,"
        "    round_trip: 0.25, unsent: 2048, last_error: 'none', stats: {recv_bytes_details: {rate: 1024},"
        "    send_bytes_details: {rate: 0}}}]);"
        "  document.querySelector('main').replaceChildren(table.element); done(); });"
    )
    assert screen.texts("tbody td") == ["<b>@h", "up", "::1:5", "0.3 ms", "1 KiB/s", "0 B/s", "2 KiB", "none"]
