"""`LinkConfig`: what all links of a node have in common, and the shared secret."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ...actors.control.proof import SECRET_MIN, SecretError, make_secret
from ...settings import Settings
from .contract import LinksError
from .greeting import derived_key
from .registry import BULK, CONTROL, DATA, Registry

#: Where the secret is if nothing says otherwise.
DEFAULT_COOKIE_FILE = "~/.warren.cookie"

#: The environment variable that wins over the file.
COOKIE_VARIABLE = "WARREN_COOKIE"


class LinkConfig(NamedTuple):
    """The key of the greetings, what may cross, and how much a lane holds for a node that is behind with the log."""

    key: bytes
    registry: Registry
    windows: dict[str, int]

    @classmethod
    def of(cls, settings: Settings, registry: Registry) -> LinkConfig:
        """Waits for the disk. Raises LinksError if there is no secret that can be used."""
        windows = {
            CONTROL: settings.link_control_window,
            DATA: settings.link_data_window,
            BULK: settings.link_bulk_window,
        }
        return cls(derived_key(shared_secret(settings)), registry, windows)


def shared_secret(settings: Settings) -> bytes:
    """The secret that all nodes of the cluster have; a new one in a new file if there is none yet (CL-7, CL-124).

    Raises LinksError.
    """
    for name, given in (("setting 'cluster_cookie'", settings.cluster_cookie), (COOKIE_VARIABLE, _environment())):
        if given:
            secret = given.encode("utf-8", "surrogateescape")
            if len(secret) < SECRET_MIN:
                raise LinksError(f"{name} has {len(secret)} bytes; a shared secret has at least {SECRET_MIN}")
            return secret
    path = Path(settings.cluster_cookie_file or DEFAULT_COOKIE_FILE).expanduser()
    try:
        return make_secret(str(path))
    except SecretError as error:
        raise LinksError(f"setting 'cluster_cookie_file': {error}") from None


def _environment() -> str:
    return os.environ.get(COOKIE_VARIABLE, "").strip()
