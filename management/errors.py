"""`HttpError`: a refusal of the API, with RabbitMQ's status and JSON (CM-233)."""

from __future__ import annotations

from typing import Any

from .copy.node_link import OperationRefused

REALM = 'Basic realm="RabbitMQ Management"'

#: AMQP's reply codes that have a status of their own.
ACCESS_REFUSED, NOT_FOUND = 403, 404


class HttpError(Exception):
    """A refusal. `reason` is a text, or for a value of a wrong type a list."""

    def __init__(self, status: int, error: str, reason: Any, headers: dict[str, str] | None = None) -> None:
        super().__init__(error, reason)
        self.status = status
        self.body: dict[str, Any] | None = {"error": error, "reason": reason}
        self.headers = headers or {}


def bad_request(reason: Any) -> HttpError:
    return HttpError(400, "bad_request", reason)


def not_found() -> HttpError:
    return HttpError(404, "Object Not Found", "Not Found")


def not_authorised(reason: str) -> HttpError:
    """For a logged-in user that may not do this: 401, as in RabbitMQ, but not spelt as for a failed login (CM-229)."""
    return HttpError(401, "not_authorised", reason)


def login_failed(reason: str = "Login failed") -> HttpError:
    return HttpError(401, "not_authorized", reason, {"www-authenticate": REALM})


def token_refused(reason: str) -> HttpError:
    """For a token that logs nobody in, with the reason for clients of OAuth 2 (RFC 6750) and for people."""
    shown = reason.encode("ascii", "replace").decode().replace("\\", "'").replace('"', "'")
    text = "".join(each for each in shown if each.isprintable())
    bearer = f'Bearer realm="RabbitMQ Management", error="invalid_token", error_description="{text}"'
    return HttpError(401, "not_authorized", f"Login failed: {reason}", {"www-authenticate": bearer})


def login_needed() -> HttpError:
    error = HttpError(401, "", "", {"www-authenticate": REALM})
    error.body = None
    return error


def key_missing(name: str) -> HttpError:
    return bad_request(f"[{{key_missing,{name}}}]")


def of_refusal(refusal: OperationRefused) -> HttpError:
    """The error for a request whose operation the node refuses."""
    if refusal.code == ACCESS_REFUSED:
        return not_authorised("Access refused.")
    if refusal.code == NOT_FOUND:
        return HttpError(404, "not_found", refusal.text)
    if refusal.kind == "timeout":
        return HttpError(503, "timeout", refusal.text)
    return bad_request(refusal.text if not refusal.details else "\n".join([refusal.text, *refusal.details]))
