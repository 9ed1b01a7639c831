"""Checking that an LMDB environment is whole before the check opens it: LMDB kills the process at a damaged one."""

from __future__ import annotations

from ..disk.lmdb_check import DamagedFile, check_file
from .verify_report import Findings


def is_sound(path: str, place: str, findings: Findings, outcome: str) -> bool:
    """Whether the existing environment at `path` is whole. If not, a finding with `outcome` is added."""
    try:
        check_file(f"{path}/data.mdb")
    except FileNotFoundError:
        findings.warn(place, "data.mdb is missing", outcome)
    except DamagedFile as error:
        findings.error(place, f"the LMDB file data.mdb is damaged: {error}", outcome)
    except OSError as error:
        findings.unreadable(f"{place}/data.mdb", error)
    else:
        return True
    return False
