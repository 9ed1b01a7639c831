"""All operations: importing this module registers them.

A process that performs operations imports `perform` from here. A new module of operations is added to the import below.
"""

from . import acting, definitions, diagnosing, listings, permissions, policies, status, tuning, users, vhosts
from .registry import perform

__all__ = [
    "acting",
    "definitions",
    "diagnosing",
    "listings",
    "perform",
    "permissions",
    "policies",
    "status",
    "tuning",
    "users",
    "vhosts",
]
