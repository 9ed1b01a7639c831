"""The check of the settings for logins with tokens of an OAuth 2 provider."""

from __future__ import annotations

from importlib.util import find_spec
from urllib.parse import urlsplit

from .fields import SettingsError, wrong

KEYS, AUDIENCE = "management_oauth_keys", "management_oauth_audience"


def check_oauth(keys: str | None, audience: str | None) -> None:
    """Raise SettingsError if no token could be checked, or if tokens could be accepted that were not issued for this
    broker.
    """
    if keys is None:
        return
    address = urlsplit(keys)
    is_local = address.scheme == "http" and address.hostname in ("localhost", "127.0.0.1", "::1")
    if "://" in keys and address.scheme != "https" and not is_local:
        # Without TLS somebody on the network could answer in the provider's place with a key of his own, and log in as
        # anybody.
        raise wrong(KEYS, keys, "an https address, an http address of this machine, or the path of a file")
    if audience is None:
        raise wrong(AUDIENCE, None, f"a text when {KEYS} is set: tokens for other services must not log in here")
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        raise SettingsError(
            KEYS, f"setting '{KEYS}' needs the libraries of an extra: install them with pip install 'warren-mq[oauth]'"
        )
