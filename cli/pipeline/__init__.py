"""`warren pipeline`: the jobs of warren.spark as commands."""

from . import archive_commands, study_commands
from .command import pipeline

__all__ = ["archive_commands", "pipeline", "study_commands"]
