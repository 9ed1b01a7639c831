"""The frame of the page: the login, the tabs, live updates, lists, and names with any characters."""

import pytest

NAMES = ['<img src=x onerror="document.title=1">', "</td><script>alert(1)</script>", "a/b?c#d%2F&e", "žluťoučký 🐇"]


def test_a_wrong_password_is_refused_and_what_was_typed_stays(driver, api):
    """A wrong password is refused with the reason, and the name that the user typed stays in its field (CM-380,
    CM-384).
    """
    from .conftest import Screen

    driver.delete_all_cookies()
    screen = Screen(driver, api.port)
    driver.get(screen.base)
    screen.find("[name=username]").send_keys("guest")
    screen.find("[name=password]").send_keys("wrong")
    screen.click("form.login button")
    screen.shows("The user name or the password is wrong.", ".login .problem")
    assert screen.find("[name=username]").get_attribute("value") == "guest"
    screen.complaints()


def test_a_login_lasts_until_one_logs_out(screen):
    """A login survives a reload of the page, and after "Log out" a reload shows the form again (CM-380)."""
    screen.driver.refresh()
    screen.shows("Overview", "nav a[aria-current]")
    screen.press("Log out", "header")
    screen.find("form.login")
    screen.driver.refresh()
    screen.find("form.login")


def test_the_overview_is_live(screen, broker):
    """The overview's total of ready messages follows each publish and a purge without a reload (CM-387, CM-390)."""
    broker.declare_queue("counted")
    tile = ".tile:first-child .figure"
    screen.until(lambda: screen.text(tile) == "0")
    for number in ("1", "2", "3"):
        broker.publish(b"x", "counted")
        screen.until(lambda number=number: screen.text(tile) == number)
    broker.purge("counted")
    screen.until(lambda: screen.text(tile) == "0")


def test_the_charts_move(screen, broker):
    """The charts are redrawn as statistics arrive (CM-383, CM-387)."""
    broker.declare_queue("moving")
    line = ".chart path.line.series-1"
    screen.until(lambda: screen.find(line).get_attribute("d"))
    drawings = set()

    def moved():
        broker.publish(b"x", "moving")
        drawings.add(screen.find(line).get_attribute("d"))
        return len(drawings) > 3

    screen.until(moved, "the chart stands still")


def test_a_series_can_be_switched_off(screen):
    """A click at its legend entry hides a series of a chart (CM-383)."""
    entry = screen.find(".chart .entry")
    screen.until(lambda: screen.all(".chart path.line.series-0"))
    entry.click()
    assert entry.get_attribute("aria-pressed") == "false"
    screen.until(lambda: len(screen.all(".chart path.line.series-0")) == 1)
    entry.click()


def test_nothing_is_held_back(screen):
    screen.shows("Nothing holds a connection back.", ".flow")


@pytest.fixture
def queues(broker):
    names = [*NAMES, *(f"sorted.{number}" for number in range(5))]
    for name in names:
        broker.declare_queue(name, durable=True)
    for number in range(5):
        for _ in range((number * 3) % 5):
            broker.publish(b"x", f"sorted.{number}")
    yield names
    for name in names:
        broker.delete_queue(name)


def listed(screen):
    return screen.texts("main .list tbody tr td:nth-child(2)")


def test_names_are_shown_and_never_executed(screen, queues):
    screen.go("#/queues")
    screen.until(lambda: set(NAMES) <= set(listed(screen)))
    assert screen.driver.title == "Queues – warren"


def test_a_list_is_sorted_filtered_and_divided_by_the_server(screen, queues):
    """The server sorts and filters the list of queues by a part of the name or a regular expression, and the page says
    how many of how many it shows (CM-382, CM-387).
    """
    screen.go("#/queues")
    screen.find(".filter").send_keys("SORTED")
    screen.until(lambda: listed(screen) == [f"sorted.{number}" for number in range(5)])
    screen.shows("displaying 5 of 5, filtered from", ".summary")
    screen.click('[data-sort="messages"]')
    screen.until(lambda: listed(screen) == [f"sorted.{number}" for number in (3, 1, 4, 2, 0)])
    assert screen.text('[aria-sort="descending"]').startswith("Total")
    screen.click('[data-sort="messages"]')
    screen.until(lambda: listed(screen)[0] == "sorted.0")
    screen.click('[data-sort="name"]')
    screen.find(".filter").clear()
    screen.find(".filter").send_keys("^sorted.[13]$")
    screen.shows("displaying 0 of 0", ".summary")
    screen.click(".tools input[type=checkbox]")
    screen.until(lambda: listed(screen) == ["sorted.1", "sorted.3"])
    screen.find(".filter").send_keys("(")
    screen.shows("This is no regular expression.", ".list .problem")


def test_columns_are_chosen_and_remembered(screen, queues):
    """A column that the user has hidden stays hidden after a reload (CM-382)."""
    screen.go("#/queues")
    screen.until(lambda: "Policy" in screen.texts(".list th"))
    screen.click(".chooser summary")
    label = next(each for each in screen.all(".menu label") if each.text == "Policy")
    label.click()
    screen.until(lambda: "Policy" not in screen.texts(".list th"))
    screen.driver.refresh()
    screen.until(lambda: screen.texts(".list th"))
    assert "Policy" not in screen.texts(".list th")
    screen.driver.execute_script("localStorage.clear()")


def test_a_queue_is_added(screen, broker):
    """A form adds a queue. After a refusal it shows the API's reason and keeps what was typed (CM-384, CM-405)."""
    screen.go("#/queues")
    screen.unfold("Add a queue")
    screen.fill("Add a queue", name="added by hand")
    screen.shows("Queue 'added by hand' is there.", "#messages")
    screen.until(lambda: "added by hand" in listed(screen))
    screen.fill("Add a queue", name="amq.mine")
    screen.shows("Access refused.", "form .problem")
    assert screen.find('form [name="name"]').get_attribute("value") == "amq.mine"
    # The browser logs each refused request as an error, which is no fault of the page.
    assert all("amq.mine" in each for each in screen.complaints())
    broker.delete_queue("added by hand")


def test_the_search_finds_by_a_part_of_the_name(screen, queues):
    """The key `/` leads to the search box, which finds a queue by a part of its name (CM-388)."""
    from selenium.webdriver.common.keys import Keys

    screen.find("body").send_keys("/")
    screen.until(lambda: screen.driver.switch_to.active_element.get_attribute("id") == "search")
    screen.driver.switch_to.active_element.send_keys("sorted.3")
    screen.shows("sorted.3", ".results")
    screen.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    screen.until(lambda: not screen.find(".results").is_displayed())


def test_lists_are_about_the_chosen_virtual_host(screen, queues, api):
    """The virtual host chosen in the header limits every list to its objects (CM-380)."""
    from selenium.webdriver.support.ui import Select

    api("PUT", "/api/vhosts/chosen")
    api("PUT", "/api/queues/chosen/only", {})
    screen.driver.refresh()
    Select(screen.find('[aria-label="Virtual host"]')).select_by_visible_text("chosen")
    screen.go("#/queues")
    screen.until(lambda: listed(screen) == ["only"])
    screen.driver.execute_script("localStorage.clear()")
    api("DELETE", "/api/vhosts/chosen")


def test_the_page_polls_or_pauses_on_request(screen, broker):
    """The user chooses whether the page is live, polls, or is paused, and the header says which (CM-380, CM-387)."""
    from selenium.webdriver.support.ui import Select

    broker.declare_queue("polled")
    pace = Select(screen.find('[aria-label="Refresh"]'))
    for choice, word in (("every 10 s", "polling"), ("paused", "paused"), ("live", "live")):
        pace.select_by_visible_text(choice)
        screen.until(lambda word=word: screen.text(".refreshed").startswith(word))
        screen.shows("Ready", ".tiles")
    broker.delete_queue("polled")
