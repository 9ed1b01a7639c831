"""All operations: importing this module registers them.

A process that performs operations imports `perform` from here. A new module of operations is added to the import below.
"""

from . import listings, status, vhosts
from .registry import perform

__all__ = ["listings", "perform", "status", "vhosts"]
