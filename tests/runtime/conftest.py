"""Systems of actors for the tests of runtime/. Events reach a test by being sent to it: `system.listen(WAIT)`."""

from __future__ import annotations

import logging

import pytest
from thespian.actors import ActorSystem

from warren.runtime.loop_base import LoopBase
from warren.runtime.outside import OutsideClient


@pytest.fixture
def base():
    base = LoopBase(shutdown_seconds=2.0)
    yield base
    base.shutdown()


@pytest.fixture
def system(base):
    return ActorSystem(systemBase=base, transientUnique=True)


@pytest.fixture
def client(system):
    with OutsideClient(system) as client:
        yield client


@pytest.fixture(params=["simpleSystemBase", "LoopBase"])
def any_system(request):
    """Thespian's reference base, and ours: what a plain actor may rely on must hold on both."""
    if request.param == "LoopBase":
        system = ActorSystem(systemBase=LoopBase(capabilities={"Fish": True}), transientUnique=True)
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
