"""What one turn does at most when several messages, or a message and the end of the turn, ask for the same work."""

from __future__ import annotations

from typing import Any

from warren.actors.queue.master.message_expiry import EXPIRY_STEP
from warren.actors.queue.process import Queue
from warren.amqp.parser.events import ACKS

from .measured_turns import LARGE, SMALL, TURN_MESSAGES
from .stage import Stage
from .test_turn_work import holding, messages_that_expire_together, numbers


def test_acks_of_several_inputs_share_the_work_of_a_turn() -> None:
    """Each input has fewer acks than a turn may settle, and a turn that handles several of them settles no more."""
    with Stage(turn_messages=TURN_MESSAGES) as stage:
        channel = holding(stage, SMALL)
        unacked, turn, most = channel.actor.deliveries.unacked, stage.base.turn, 0

        def counted(cell: Any) -> Any:
            nonlocal most
            before = unacked.count
            message = turn(cell)
            most = max(most, before - unacked.count)
            return message

        stage.base.turn = counted  # type: ignore[method-assign]
        tags = numbers(SMALL)
        size = TURN_MESSAGES - 1
        channel.input(*[(ACKS, 1, [(tag, False) for tag in tags[at : at + size]]) for at in range(0, SMALL, size)])
        stage.until(lambda: not unacked.count and not channel.actor.busy)
        assert most <= TURN_MESSAGES


def test_no_turn_has_more_than_one_step_of_messages_expire() -> None:
    """The basic.get that takes the message before them begins with a step, and the end of its turn adds none."""
    with Stage(turn_messages=TURN_MESSAGES) as stage:
        act = messages_that_expire_together(stage, LARGE)
        queue = next(
            cell.actor for cell in stage.base.cells.values() if isinstance(getattr(cell, "actor", None), Queue)
        )
        turn, most = stage.base.turn, 0

        def counted(cell: Any) -> Any:
            nonlocal most
            before = len(queue.backing)
            message = turn(cell)
            most = max(most, before - len(queue.backing))
            return message

        stage.base.turn = counted  # type: ignore[method-assign]
        act()
        assert most == EXPIRY_STEP + 1
