"""Whether an LMDB environment may be opened by whoever verifies: one that is damaged would end this process."""

from __future__ import annotations

from ..disk.lmdb_check import DamagedFile, check_file
from .verify_report import Findings


def is_sound(path: str, place: str, findings: Findings, outcome: str) -> bool:
    """Whether the environment at `path`, which exists, is whole. If not, the finding ends with `outcome`."""
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
