"""The first user of a new node, its administrator."""

from __future__ import annotations

from ...definitions.passwords import hashed
from ...definitions.records import User
from ...settings import Settings


def first_user(settings: Settings, salt: bytes) -> User:
    """The default user of the settings. Without a password he can log in by a certificate only.

    Raises SettingsError if the file with his password cannot be read.
    """
    password = settings.first_password()
    return User(settings.default_user, hashed(password, salt) if password else "", tags=("administrator",))
