"""`warren pipeline`: the jobs of warren.spark as commands."""

from . import archive_commands, flow_command, study_commands
from .command import pipeline

__all__ = ["archive_commands", "flow_command", "pipeline", "study_commands"]
