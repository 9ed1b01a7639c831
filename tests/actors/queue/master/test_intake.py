"""How a queue treats a publish, decided without a process (AB-101, AB-111, AB-123)."""

from __future__ import annotations

from .core import Core


def test_publishes_of_one_turn_are_joined_and_confirmed_by_channel():
    """Publishes of one turn are joined, and each channel gets one confirm with ranges of its own numbers (AB-111)."""
    core = Core()
    core.publish(2, channel="one", number=1)
    core.publish(3, first=2, channel="other", number=7)
    core.publish(1, first=5, channel="one", number=3)
    assert len(core.master.intake.arrivals) == 1
    core.turn()
    assert sorted(core.sent("confirm")) == [("one", "id of q", [(1, 3)]), ("other", "id of q", [(7, 9)])]
    assert len(core.backing) == 6 and core.effects.messages_came


def test_publishes_that_await_no_confirm_get_none():
    core = Core()
    core.publish(2, awaits_confirm=False)
    core.turn()
    assert core.sent("confirm") == [] and not len(core.state.confirms.awaiting)


def test_what_consumers_have_no_room_for_is_stored():
    """An empty queue gives messages directly to consumers and stores those they have no room for; all are confirmed
    (AB-123).
    """
    core = Core()
    core.consume(prefetch=2)
    core.publish(5)
    core.turn()
    assert core.bodies() == [0, 1] and len(core.backing) == 3 and core.backing.totals().depth == 5
    assert core.sent("confirm") == [("publisher", "id of q", [(1, 5)])]


def test_a_full_queue_refuses_what_does_not_fit():
    """A full queue confirms or refuses each message of a publish by itself (AB-101)."""
    core = Core(x_max_length=3, x_overflow="reject-publish")
    core.publish(5)
    core.turn()
    assert core.sent("confirm") == [("publisher", "id of q", [(1, 3)])]
    assert core.sent("refuse") == [("publisher", "id of q", [(4, 5)], False)]
    assert len(core.backing) == 3


def test_refused_messages_may_become_dead_letters():
    """With the overflow reject-publish-dlx, refused messages become dead letters (AB-101)."""
    core = Core(
        x_max_length=1,
        x_overflow="reject-publish-dlx",
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="grave",
    )
    core.grave("grave")
    core.publish(3)
    core.turn()
    assert [body for name, found in core.buried() for body in found if name == "grave"] == [1, 2]
    assert len(core.sent("refuse")) == 1


def test_a_ttl_of_zero_needs_a_consumer_that_is_ready():
    """A message with a TTL of 0 is delivered to a ready consumer; without one it expires at once and is confirmed
    (AB-96).
    """
    core = Core(x_dead_letter_exchange="", x_dead_letter_routing_key="grave")
    core.grave("grave")
    core.publish(1, expiration=0)
    core.turn()
    assert core.buried() == [("grave", [0])] and len(core.sent("confirm")) == 1
    core.consume()
    core.publish(1, first=1, number=2, expiration=0)
    core.turn()
    assert core.bodies() == [1] and core.buried() == []


def test_credit_is_granted_for_what_is_taken():
    """Credit is granted after every 200 messages of a channel, however they were divided into publishes (FC-4)."""
    core = Core()
    for number in range(5):
        core.publish(90, number=1 + 90 * number)
    assert core.effects.grants == [("publisher", 200), ("publisher", 200)]
