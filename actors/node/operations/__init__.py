"""The operations that an operator can have a node perform, by the names of RabbitMQ's commands.

Importing this package registers them: a module with operations must be imported here.
"""

from __future__ import annotations

from . import vhosts as vhosts
