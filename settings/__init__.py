"""The configuration of a node: its settings, and how sizes, limits and a cluster's settings are written."""

from .fields import SettingsError
from .keywords import NodeKeywords, SettingKeywords
from .settings import DEFAULT_PORT, FRAME_MIN_SIZE, MAX_MESSAGE_SIZE_HARD_CAP, Settings

__all__ = [
    "DEFAULT_PORT",
    "FRAME_MIN_SIZE",
    "MAX_MESSAGE_SIZE_HARD_CAP",
    "NodeKeywords",
    "SettingKeywords",
    "Settings",
    "SettingsError",
]
