"""`instance_of`: makes the object of an actor, as Thespian does."""

from __future__ import annotations

import inspect
from typing import Any
from weakref import WeakKeyDictionary

from thespian.actors import NoCompatibleSystemForActor

#: By actor class: which of Thespian's optional arguments its `__init__` takes. Inspecting a class costs 20 µs; the
#: result is shared by all systems because a simulation makes thousands of them a minute.
_init_arguments: WeakKeyDictionary[type, tuple[str, ...]] = WeakKeyDictionary()


def instance_of(actor_class: type, capabilities: dict[str, Any], requirements: Any) -> Any:
    """An actor of this class. Raises NoCompatibleSystemForActor if the class needs other capabilities."""
    check = getattr(actor_class, "actorSystemCapabilityCheck", None)
    if check is not None and not check(capabilities, requirements or {}):
        raise NoCompatibleSystemForActor(actor_class, "this system lacks a required capability")
    wanted = _init_arguments.get(actor_class)
    if wanted is None:
        # Thespian passes these two to an `__init__` that has parameters of these names.
        names = inspect.signature(actor_class).parameters
        wanted = tuple(name for name in ("capabilities", "requirements") if name in names)
        _init_arguments[actor_class] = wanted
    if not wanted:
        return actor_class()
    given = {"capabilities": capabilities, "requirements": requirements}
    return actor_class(**{name: given[name] for name in wanted})
