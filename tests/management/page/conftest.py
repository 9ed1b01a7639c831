"""A headless browser, which all tests of the folder share, and `Screen`, which reads and operates the page in it."""

import json
import shutil

import pytest

#: Seconds that a test waits for the page to show something; long, because other tests may slow the machine down.
PATIENCE = 300.0

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

#: JavaScript: `texts(selector)` gives the visible text of each element that the selector finds. One script reads all
#: elements, because each command of the browser's driver costs milliseconds in three processes, and the driver's own
#: command for the text of one element runs a long script.
TEXTS = """
const shown = (each) => each.checkVisibility({checkVisibilityCSS: true, checkOpacity: true});
const text = (each) => (each.innerText ?? each.textContent).replaceAll("\\t", " ").trim();
const texts = (selector) => [...document.querySelectorAll(selector)].map((each) => shown(each) ? text(each) : "");
"""
#: JavaScript: find the first element that matches the selector and has this visible text, and scroll it to the middle
#: of the window.
FIND_BY_TEXT = f"""{TEXTS}
const [selector, wanted] = arguments;
const found = [...document.querySelectorAll(selector)].find((each) => shown(each) && text(each) === wanted);
found?.scrollIntoView({{block: "center"}});
return found;
"""


class Screen:
    """What a person sees on the page and does with it."""

    def __init__(self, driver, port):
        self.driver = driver
        self.base = f"http://127.0.0.1:{port}/"

    def until(self, look, what=""):
        """Call `look` until its value is true, and return it. Errors are ignored meanwhile, because the page may
        replace an element between two commands of the driver.
        """
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
        return self.until(lambda: self.texts(selector), f"there is no {selector}")[0]

    def texts(self, selector):
        return self.driver.execute_script(f"{TEXTS} return texts(arguments[0])", selector)

    def shows(self, text, selector="body"):
        self.until(lambda: text in self.text(selector), f"{selector} does not show {text!r}")

    def click(self, selector):
        self.until(lambda: self.hit(self.all(selector)[0]), f"{selector} cannot be clicked")

    def click_text(self, selector, text):
        """Click the first element of `selector` with this text; return False if there is none."""
        found = self.driver.execute_script(FIND_BY_TEXT, selector, text)
        if found is None:
            return False
        found.click()
        return True

    def hit(self, element):
        """Scroll the element to the middle of the window, where no bar covers it, and click it."""
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()
        return True

    def press(self, text, within="main"):
        """Press the button with this text."""
        self.until(lambda: self.click_text(f"{within} button", text), f"there is no button {text!r} in {within}")

    def unfold(self, title):
        """Open the section of the view with this title, unless it is open already."""

        def unfolded():
            closed = "details.section:not([open]) > summary"
            return self.click_text(closed, title) or title in self.texts("details.section[open] > summary")

        self.until(unfolded, f"there is no part {title!r}")

    def fill(self, form, **values):
        """Type the values into the fields of the form with this label, and submit it. The click waits until the button
        is enabled: the page disables it until the answer to the previous submission has come.
        """
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
        self.click(f'form[aria-label="{form}"] button[type=submit]:not([disabled])')

    def go(self, address):
        self.driver.execute_script("location.hash = arguments[0]", address)

    def open(self, user="guest", password="guest"):
        """Load the page and log in."""
        self.driver.get(self.base)
        if self.find("form.login, nav a").tag_name == "form":
            self.find("[name=username]").send_keys(user)
            self.find("[name=password]").send_keys(password)
            self.click("form.login button")
        self.find("nav a")

    def complaints(self):
        """The errors that the browser has logged since the last call."""
        return [each["message"] for each in self.driver.get_log("browser") if each["level"] == "SEVERE"]

    def requests(self):
        """The addresses of all requests that the browser has made since the last call."""
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
    """The browser. After the tests of a file it leaves the page, because their broker ends, and its logs
    are emptied.
    """
    yield browser
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)


@pytest.fixture
def screen(driver, api):
    """The page, logged in as `guest`. After each test the browser must have logged no error and no request to another
    host.
    """
    driver.delete_all_cookies()
    screen = Screen(driver, api.port)
    # A cookie of a login replaces typing name and password, which would cost time in each test; `test_frame.py` tests
    # the form.
    login = {"content-type": "application/x-www-form-urlencoded"}
    api.raw("POST", "/api/login", "username=guest&password=guest", login)
    name, _, value = api.answer_headers["set-cookie"].partition(";")[0].partition("=")
    driver.execute_cdp_cmd("Network.setCookie", {"url": screen.base, "name": name, "value": value, "path": "/"})
    screen.open()
    yield screen
    assert screen.complaints() == []
    outside = [url for url in screen.requests() if not url.startswith((screen.base, "chrome", "data:", "about:"))]
    assert outside == []
