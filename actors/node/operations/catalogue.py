"""All operations: importing this module registers them.

A process that performs operations imports `perform` and its kin from here. A new module of operations is added to the
import below.
"""

from .definitions import export_and_import, pacing, permissions, policies, users, vhosts
from .observing import browsing, listings, memory, messages, peeking, processes, schema, statistics, status, watching
from .operating import acting, as_user, cluster, features, maintenance, masters, program, remote, rings, tuning
from .registry import perform, perform_once, perform_unawaited

__all__ = [
    "acting",
    "as_user",
    "browsing",
    "cluster",
    "export_and_import",
    "features",
    "listings",
    "maintenance",
    "masters",
    "memory",
    "messages",
    "pacing",
    "peeking",
    "perform",
    "perform_once",
    "perform_unawaited",
    "permissions",
    "policies",
    "processes",
    "program",
    "remote",
    "rings",
    "schema",
    "statistics",
    "status",
    "tuning",
    "users",
    "vhosts",
    "watching",
]
