"""`MUTANTS`: the bugs that schedules of one node must find. The other modules of this folder add them."""

from __future__ import annotations

from warren.tests.planting import Bugs

MUTANTS = Bugs()
bug = MUTANTS.bug
