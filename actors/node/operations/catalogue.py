"""All operations: importing this module registers them.

A process that performs operations imports `perform` from here. A new module of operations is added to the import below.
"""

from . import (
    acting,
    as_user,
    cluster,
    definitions,
    features,
    listings,
    maintenance,
    memory,
    messages,
    pacing,
    permissions,
    policies,
    program,
    remote,
    statistics,
    status,
    tuning,
    users,
    vhosts,
    watching,
)
from .registry import perform

__all__ = [
    "acting",
    "as_user",
    "cluster",
    "definitions",
    "features",
    "listings",
    "maintenance",
    "memory",
    "messages",
    "pacing",
    "perform",
    "permissions",
    "policies",
    "program",
    "remote",
    "statistics",
    "status",
    "tuning",
    "users",
    "vhosts",
    "watching",
]
