"""The first user of a new node, its administrator."""

from __future__ import annotations

from ...definitions.errors import DefinitionError
from ...definitions.password_rules import check_password
from ...definitions.passwords import hashed
from ...definitions.records import User
from ...settings import Settings, SettingsError


def first_user(settings: Settings, salt: bytes) -> User:
    """The default user of the settings. Without a password he can log in by a certificate only.

    Raises SettingsError if the file with his password cannot be read, or if the validators refuse his password.
    """
    password = settings.first_password()
    if password:
        try:
            check_password(password, settings.credential_validator_min_length, settings.credential_validator_regexp)
        except DefinitionError as error:
            key = "default_pass" if settings.default_pass_file is None else "default_pass_file"
            raise SettingsError(
                key, f"setting '{key}' is not a password that this node accepts: {error.text}"
            ) from None
    return User(settings.default_user, hashed(password, salt) if password else "", tags=("administrator",))
