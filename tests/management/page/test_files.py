"""How the management process serves the files of the page; these tests need no browser."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "management" / "page"
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())


def test_the_root_leads_to_the_page(api):
    assert api.raw("GET", "/")[0] == 302
    assert api.answer_headers["location"] == "/page/"
    status, text = api.raw("GET", "/page/")
    assert (status, text) == (200, (FOLDER / "index.html").read_bytes())


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_served_and_not_sent_again(api, name):
    status, text = api.raw("GET", f"/page/{name}")
    assert (status, text) == (200, (FOLDER / name).read_bytes())
    assert api.answer_headers["cache-control"] == "no-cache"
    tag = api.answer_headers["etag"]
    assert api.raw("GET", f"/page/{name}", headers={"if-none-match": tag}) == (304, b"")
    assert api.raw("GET", f"/page/{name}", headers={"if-none-match": '"other"'})[0] == 200


@pytest.mark.parametrize("path", ["../app.py", "%2e%2e/app.py", "views/../../app.py", "nosuch.js", "views", "views/"])
def test_no_other_file_is_served(api, path):
    assert api.raw("GET", f"/page/{path}")[0] == 404


def test_a_browser_may_run_scripts_of_the_page_alone(api):
    """The content security policy allows scripts and styles from the page's own files only (CM-386)."""
    api.raw("GET", "/page/")
    policy = api.answer_headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy


def test_only_reading_is_allowed(api):
    assert api.raw("POST", "/page/", "x")[0] == 405
    assert api.raw("HEAD", "/page/main.js") == (200, b"")


def test_the_page_is_small_and_names_no_other_host():
    """All files together are smaller than 300 KB, and the only address in them is SVG's namespace, so that the page
    works without access to the internet (CM-386).
    """
    texts = {name: (FOLDER / name).read_text() for name in FILES}
    assert sum(map(len, texts.values())) < 300_000
    for name, text in texts.items():
        assert set(re.findall(r"https?://[^\s\"'`)]+", text)) <= {"http://www.w3.org/2000/svg"}, name


def test_no_text_ever_becomes_markup():
    """The page creates text nodes only, so that a queue named `<script>` runs no script (CM-386)."""
    forbidden = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function")
    for name in FILES:
        assert not forbidden.search((FOLDER / name).read_text()), name


def test_a_script_gets_no_prompt_for_a_password(api):
    nobody = type(api)(api.port, user=None)
    assert nobody.raw("GET", "/api/whoami")[0] == 401
    assert "www-authenticate" in nobody.answer_headers
    assert nobody.raw("GET", "/api/whoami", headers={"x-requested-with": "warren"})[0] == 401
    assert "www-authenticate" not in nobody.answer_headers


def test_who_is_logged_in(api):
    nobody = type(api)(api.port, user=None)
    assert nobody.get("/api/login") == {"name": None, "tags": []}
    assert api.get("/api/login") == {"name": "guest", "tags": ["administrator"]}


def test_logging_out_takes_the_cookie_away(api):
    assert api("DELETE", "/api/login")[0] == 204
    assert api.answer_headers["set-cookie"].startswith("auth=;")
    assert "Max-Age=0" in api.answer_headers["set-cookie"]


def test_the_script_is_offered_for_download(api):
    """`/cli/` offers the script `warrenadmin`, and nothing else is there (CM-225)."""
    assert api.raw("GET", "/cli")[0] == 302 and api.answer_headers["location"] == "/cli/"
    status, text = api.raw("GET", "/cli/")
    assert status == 200 and b'href="warrenadmin"' in text
    status, text = api.raw("GET", "/cli/warrenadmin")
    assert status == 200 and text.startswith(b"#!/usr/bin/env python3\n")
    for path in ("/cli/warrenadmin.py", "/cli/../app.py", "/warrenadmin"):
        assert api.raw("GET", path)[0] == 404
