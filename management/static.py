"""`ManagementPage`: the files in `management/page/`, which any browser loads as they are, and the script `warrenadmin`
(CM-225).

The files are read once, when the process starts. A request names one of them exactly or gets 404, so no path can reach
another file. Each file has an entity tag: a browser asks again each time and gets 304 unless the file has changed, so a
new version of the broker never runs with an old version of its page.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "page"

#: Where the page is, below the prefix of all paths.
PLACE = "/page/"

#: The files that are offered for download, by their paths below the prefix.
DOWNLOADS = {"/cli/": "index.html", "/cli/index.html": "index.html", "/cli/warrenadmin": "warrenadmin.py"}
DOWNLOAD_FOLDER = Path(__file__).parent / "download"

#: The kinds of files that there are.
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".py": "text/x-python; charset=utf-8",
    ".svg": "image/svg+xml",
}

#: What a browser may do with the page: nothing but load the files of this folder and use the API beside it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


class StaticFile(NamedTuple):
    content: bytes
    media_type: str
    tag: str


class ManagementPage:
    """The files of the page. `prefix` is what all paths begin with, and `headers` are those of every answer."""

    def __init__(self, prefix: str, headers: Mapping[str, str]) -> None:
        self._prefix = prefix
        self._headers = {**headers, "content-security-policy": POLICY, "referrer-policy": "no-referrer"}
        self._files = {
            PLACE + path.relative_to(FOLDER).as_posix(): _read(path)
            for path in sorted(FOLDER.rglob("*"))
            if path.suffix in MEDIA_TYPES
        }
        self._files[PLACE] = self._files[PLACE + "index.html"]
        self._files |= {path: _read(DOWNLOAD_FOLDER / name) for path, name in DOWNLOADS.items()}

    def answer(self, request: Request, path: str) -> Response | None:
        """The answer for this path, without the prefix; None if it is not the path of a file of the page."""
        if path in ("", "/", PLACE.rstrip("/")):
            return self._response(request, 302, {"location": self._prefix + PLACE})
        if path == "/cli":
            return self._response(request, 302, {"location": self._prefix + "/cli/"})
        file = self._files.get(path)
        if file is None:
            return None
        tags = {"etag": file.tag, "content-type": file.media_type}
        if _has_tag(request.headers.get("if-none-match", ""), file.tag):
            return self._response(request, 304, tags)
        return self._response(request, 200, tags, file.content)

    def _response(self, request: Request, status: int, headers: Mapping[str, str], content: bytes = b"") -> Response:
        if request.method not in ("GET", "HEAD"):
            return Response(status_code=405, headers={**self._headers, "allow": "HEAD, GET"})
        return Response(content, status, {**self._headers, **headers})


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    return StaticFile(content, MEDIA_TYPES[path.suffix], f'W/"{hashlib.sha256(content).hexdigest()[:32]}"')


def _has_tag(header: str, tag: str) -> bool:
    """Whether the client has this version. The comparison is the weak one of HTTP: the mark `W/` does not count."""
    return any(each.strip().removeprefix("W/") == tag.removeprefix("W/") for each in header.split(","))
