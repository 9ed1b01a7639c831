"""A browser without a screen, which all tests of the folder share, and what it shows."""

import json
import shutil

import pytest

#: Seconds until something must be shown, on a machine that does other things as well.
PATIENCE = 300.0

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


class Screen:
    """What a person sees of the page and does with it."""

    def __init__(self, driver, port):
        self.driver = driver
        self.base = f"http://127.0.0.1:{port}/"

    def until(self, look, what=""):
        """The first value of `look` that is true. The page may replace an element while one looks at it."""
        from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
        from selenium.webdriver.support.wait import WebDriverWait

        ignored = (StaleElementReferenceException, IndexError, WebDriverException)
        wait = WebDriverWait(self.driver, PATIENCE, poll_frequency=0.05, ignored_exceptions=ignored)
        return wait.until(lambda _: look(), what or "the page does not show it")

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def find(self, selector):
        return self.until(lambda: self.all(selector), f"there is no {selector}")[0]

    def text(self, selector):
        return self.until(lambda: [self.all(selector)[0].text], f"there is no {selector}")[0]

    def texts(self, selector):
        return self.until(lambda: [[each.text for each in self.all(selector)]])[0]

    def shows(self, text, selector="body"):
        self.until(lambda: text in self.text(selector), f"{selector} does not show {text!r}")

    def click(self, selector):
        self.until(lambda: self.hit(self.all(selector)[0]), f"{selector} cannot be clicked")

    def hit(self, element):
        """Click the element where nothing covers it."""
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()
        return True

    def press(self, text, within="main"):
        """Press the button with this text."""

        def pressed():
            for each in self.all(f"{within} button"):
                if each.is_displayed() and each.text == text:
                    return self.hit(each)
            return False

        self.until(pressed, f"there is no button {text!r} in {within}")

    def unfold(self, title):
        """Open the part of the view with this title."""

        def unfolded():
            for each in self.all("details.section"):
                if each.find_element("css selector", "summary").text == title:
                    if each.get_attribute("open") is None:
                        self.hit(each.find_element("css selector", "summary"))
                    return True
            return False

        self.until(unfolded, f"there is no part {title!r}")

    def fill(self, form, **values):
        """Type into the fields of the form with this label, and send it."""
        from selenium.webdriver.support.ui import Select

        for name, value in values.items():
            field = self.find(f'form[aria-label="{form}"] [name="{name}"]')
            if field.tag_name == "select":
                Select(field).select_by_value(value)
            elif isinstance(value, bool):
                if field.is_selected() != value:
                    field.click()
            else:
                field.clear()
                field.send_keys(value)
        self.click(f'form[aria-label="{form}"] button[type=submit]')

    def go(self, address):
        self.driver.execute_script("location.hash = arguments[0]", address)

    def open(self, user="guest", password="guest"):
        """Load the page and log in."""
        self.driver.get(self.base)
        self.find("form.login, nav a")
        if self.all("form.login"):
            self.find("[name=username]").send_keys(user)
            self.find("[name=password]").send_keys(password)
            self.click("form.login button")
        self.find("nav a")

    def complaints(self):
        """What the browser has reported as an error."""
        return [each["message"] for each in self.driver.get_log("browser") if each["level"] == "SEVERE"]

    def requests(self):
        """The addresses of all requests of the browser."""
        events = [json.loads(each["message"])["message"] for each in self.driver.get_log("performance")]
        return [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="session")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium, which the extra 'test' installs")
    if BROWSER is None or DRIVER is None:
        pytest.skip("needs a browser: install the packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def driver(browser, broker):
    """The browser. It leaves the page before the broker of the file ends, and forgets what it has reported."""
    yield browser
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)


@pytest.fixture
def screen(driver, api):
    """The page with a login; each test begins and ends without complaints of the browser."""
    driver.delete_all_cookies()
    screen = Screen(driver, api.port)
    screen.open()
    yield screen
    assert screen.complaints() == []
    outside = [url for url in screen.requests() if not url.startswith((screen.base, "chrome", "data:", "about:"))]
    assert outside == []
