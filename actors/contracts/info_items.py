"""`InfoItems`: what a process returns for a listing."""

from __future__ import annotations

from typing import Any

#: One row of a listing: rabbitmqctl's info items, by name.
InfoItems = dict[str, Any]
