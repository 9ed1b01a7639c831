"""Systems of actors for the tests of runtime/. Actors report events by messages: `system.listen(WAIT)`."""

from __future__ import annotations

import logging

import pytest
from thespian.actors import ActorSystem

from warren.runtime.loop.loop_base import LoopBase
from warren.runtime.loop.outside import OutsideClient
from warren.runtime.sim.world import SimWorld


@pytest.fixture
def base():
    base = LoopBase(shutdown_seconds=60)
    yield base
    base.shutdown()


@pytest.fixture
def system(base):
    return ActorSystem(systemBase=base, transientUnique=True)


@pytest.fixture
def client(system):
    with OutsideClient(system) as client:
        yield client


@pytest.fixture(params=["simpleSystemBase", "LoopBase", "SimBase"])
def any_system(request):
    """Thespian's reference base and both of ours: Thespian's promises to plain actors hold on all of them."""
    if request.param == "LoopBase":
        system = ActorSystem(systemBase=LoopBase(capabilities={"Fish": True}), transientUnique=True)
    elif request.param == "SimBase":
        system = ActorSystem(systemBase=SimWorld(seed=1).machine("a").boot(), transientUnique=True)
        system.updateCapability("Fish", True)
    else:
        system = ActorSystem(request.param, {"Fish": True}, logDefs=False, transientUnique=True)
    yield system
    system.shutdown()


@pytest.fixture(autouse=True)
def quiet_thespian():
    """Thespian's simple base logs every failure of an actor with its traceback; the tests provoke them."""
    logger = logging.getLogger("Thespian")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
