"""The ledger finds each kind of broken promise. If it did not, a run without a violation would prove nothing."""

from __future__ import annotations

import pytest

from warren.simulation import bodies
from warren.simulation.bodies import Key
from warren.simulation.cluster import ledger as ledgers
from warren.simulation.cluster.ledger import RABBITMQ, Ledger, Reader, Violation
from warren.simulation.cluster.published import LedgerCopy


class Story:
    """A ledger of one queue, one publisher and one consumer, in few words."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.publisher = self.ledger.new_publisher()
        self.reader = self.ledger.reader("c")

    def key(self, number: int) -> Key:
        return Key(self.publisher, number)

    def publish(self, *numbers: int, confirm: bool = True) -> None:
        for number in numbers:
            self.ledger.publishing(self.key(number), ["q"], "a")
            if confirm:
                self.ledger.answered(self.key(number), True)

    def deliver(
        self, number: int, redelivered: bool = False, reader: Reader | None = None, queue: str = "q"
    ) -> LedgerCopy:
        key = self.key(number)
        correlation_id = f"{key.publisher}.{key.number}"
        return (reader or self.reader).delivered(queue, bodies.body(key, 20), correlation_id, redelivered)

    def settle(self, *numbers: int) -> None:
        for number in numbers:
            self.reader.acking(self.deliver(number))
        self.reader.round_trip()


@pytest.fixture
def story():
    return Story()


def test_a_run_without_a_fault_holds(story):
    """A run in which messages are acked, requeued, left in the queue, refused or never answered breaks no promise."""
    story.publish(1, 2, 3)
    story.settle(1)
    story.reader.requeueing(story.deliver(2))
    story.publish(4, confirm=False)
    story.ledger.answered(story.key(4), False)
    story.publish(5, confirm=False)
    story.ledger.answer_lost([story.key(5)])
    drain = story.ledger.reader("drain")
    found = [story.deliver(2, redelivered=True, reader=drain), story.deliver(3, reader=drain)]
    story.ledger.check_drained({"q": found})


def test_a_lost_message_is_found(story):
    story.publish(1, 2)
    with pytest.raises(Violation, match=r"1 confirmed messages are lost \(P3\)"):
        story.ledger.check_drained({"q": [story.deliver(2)]})


def test_a_message_that_was_delivered_and_not_acked_must_come_again(story):
    story.publish(1)
    story.deliver(1)
    with pytest.raises(Violation, match=r"delivered at \d\.\d+ s to c"):
        story.ledger.check_drained({"q": []})


def test_an_invented_message_is_found(story):
    with pytest.raises(Violation, match="nobody published this"):
        story.reader.delivered("q", b"some bytes that nobody published", None, False)
    with pytest.raises(Violation, match="was never published to it"):
        story.deliver(1)
    story.publish(1)
    with pytest.raises(Violation, match="was never published to it"):
        story.deliver(1, queue="another")


def test_a_message_with_the_properties_of_another_is_found(story):
    story.publish(1)
    with pytest.raises(Violation, match="correlation id 1.2"):
        story.reader.delivered("q", bodies.body(story.key(1), 20), "1.2", False)


def test_a_doubled_message_is_found(story):
    """A message that is in its queue twice is found on the channel that holds it, and when the queue is drained."""
    story.publish(1)
    copy = story.deliver(1)
    with pytest.raises(Violation, match="had not settled it"):
        story.deliver(1, redelivered=True)
    with pytest.raises(Violation, match="was 2 times in the drained queue"):
        story.ledger.check_drained({"q": [copy, copy]})


def test_a_delivery_again_without_the_flag_is_found(story):
    story.publish(1)
    story.deliver(1)
    with pytest.raises(Violation, match="without the redelivered flag"):
        story.deliver(1, reader=story.ledger.reader("d"))


def read(story, number, offset):
    key = story.key(number)
    story.ledger.reader("r").read("q", offset, bodies.body(key, 20), f"{key.publisher}.{key.number}")


def test_another_message_under_the_same_number_is_found(story):
    story.publish(1, 2)
    read(story, 1, 7)
    read(story, 1, 7)
    with pytest.raises(Violation, match="offset 7 has message 1.2 for r, and had message 1.1 before"):
        read(story, 2, 7)


def test_a_confirmed_message_keeps_its_number(story):
    """A message that was not confirmed when it was read may be published again under another number after a failover;
    a confirmed one may not.
    """
    story.publish(1, confirm=False)
    read(story, 1, 7)
    read(story, 1, 9)
    story.ledger.answered(story.key(1), True)
    read(story, 1, 9)
    with pytest.raises(Violation, match="message 1.1, which was confirmed, had number 9 and has 7 now"):
        read(story, 1, 7)


def dead_letter(story, number, times=1):
    key = story.key(number)
    drain = story.ledger.reader("drain")
    return drain.dead_letter("dead", bodies.body(key, 20), f"{key.publisher}.{key.number}", "q", times)


def test_rejected_messages_become_dead_letters(story):
    story.publish(1, 2)
    story.reader.rejecting(story.deliver(1))
    story.reader.rejecting(story.deliver(2))
    with pytest.raises(Violation, match=r"1 confirmed messages are lost \(P3\); the first is message 1.2"):
        story.ledger.check_drained({"q": []}, [dead_letter(story, 1)])


def test_a_dead_letter_is_kept_if_a_node_fails(story):
    """A dead letter is not lost if a node fails, unless the broker sends dead letters at most once."""
    story.publish(1)
    story.ledger.acks_may_be_lost()
    story.reader.rejecting(story.deliver(1))
    with pytest.raises(Violation, match="1 confirmed messages are lost"):
        story.ledger.check_drained({"q": []})
    story.ledger.promises = RABBITMQ
    story.ledger.check_drained({"q": []})


def test_a_dead_letter_comes_twice_only_if_a_node_fails(story, monkeypatch):
    """A dead letter that was made a moment before a node failed, or afterwards, may come twice; one that is older, and
    one that was made when all was well again, may not.
    """
    monkeypatch.setattr(ledgers, "DEAD_LETTER_SECONDS", 60.0)
    story.publish(1, 2)
    story.reader.rejecting(story.deliver(1))
    story.ledger.acks_may_be_lost()
    story.reader.rejecting(story.deliver(2))
    story.ledger.check_drained({"q": []}, [dead_letter(story, number) for number in (1, 1, 2, 2)])
    story.ledger.is_well()
    story.publish(3)
    story.reader.rejecting(story.deliver(3))
    monkeypatch.setattr(ledgers, "DEAD_LETTER_SECONDS", 0.0)
    story.ledger.acks_may_be_lost()
    with pytest.raises(Violation, match="has 2 dead letters"):
        story.ledger.check_drained({"q": []}, [dead_letter(story, 3), dead_letter(story, 3)])


def test_a_dead_letter_of_a_message_that_nobody_rejected_is_found(story):
    story.publish(1)
    with pytest.raises(Violation, match=r"was rejected 0 times, .* \(invented\)"):
        dead_letter(story, 1)
    story.reader.rejecting(story.deliver(1))
    with pytest.raises(Violation, match=r"was rejected 1 times, .* rejected 2 times \(invented\)"):
        dead_letter(story, 1, times=2)


def test_a_doubled_dead_letter_is_found(story):
    """A message whose rejection was lost in a failover may be rejected again, and then has two dead letters."""
    story.publish(1)
    story.reader.rejecting(story.deliver(1))
    with pytest.raises(Violation, match=r"was rejected 1 times and has 2 dead letters \(doubled\)"):
        story.ledger.check_drained({"q": []}, [dead_letter(story, 1), dead_letter(story, 1)])
    story.reader.rejecting(story.deliver(1, redelivered=True))
    story.ledger.check_drained({"q": []}, [dead_letter(story, 1), dead_letter(story, 1)])


def test_a_wrong_order_is_found_unless_it_is_redelivered(story):
    story.publish(1, 2, 3)
    story.deliver(2)
    with pytest.raises(Violation, match="behind number 2"):
        story.deliver(1)
    story.deliver(1, redelivered=True)
    story.deliver(3)


def test_an_acked_message_comes_again_only_after_a_fault(story):
    """An acked message that comes again is a violation, unless a node has failed: that node may not have received the
    ack, or not have written it.
    """
    story.publish(1)
    story.settle(1)
    other = story.ledger.reader("d")
    with pytest.raises(Violation, match="although no node has failed"):
        story.deliver(1, redelivered=True, reader=other)
    story.ledger.acks_may_be_lost()
    story.deliver(1, redelivered=True, reader=other)


def test_a_second_answer_is_found(story):
    story.publish(1)
    with pytest.raises(Violation, match=r"answered again; it was acked before \(P7\)"):
        story.ledger.answered(story.key(1), False)


def test_missing_answers_are_counted_by_queue(story):
    story.publish(1, 2, confirm=False)
    error = story.ledger.unanswered("a", [story.key(1), story.key(2)], 60)
    assert "has not answered 2 publishes for 60 s" in str(error) and "{'q': 2}" in str(error)


def test_a_confirm_without_majority_is_found(story, monkeypatch):
    """A confirm without a majority is a violation if its publish was sent after the lease had ended; a publish that was
    sent before may be confirmed late.
    """
    story.publish(1, confirm=False)
    story.ledger.alone(["a"])
    story.publish(2, confirm=False)
    story.ledger.answered(story.key(1), True)
    monkeypatch.setattr(ledgers, "LEASE_SECONDS", 0.0)
    story.ledger.alone(["a"])
    story.publish(3, confirm=False)
    with pytest.raises(Violation, match=r"a answered with a confirm .* after its lease \(P4\)"):
        story.ledger.answered(story.key(3), True)
    story.ledger.together()
    story.publish(4)


def test_a_declare_without_majority_is_found(story, monkeypatch):
    monkeypatch.setattr(ledgers, "LEASE_SECONDS", 0.0)
    early = story.ledger.declaring("q1")
    story.ledger.alone(["a"])
    story.ledger.declared("q1", "a", early)
    with pytest.raises(Violation, match=r"a answered declare-ok for q2"):
        story.ledger.declared("q2", "a", story.ledger.declaring("q2"))
    story.ledger.declared("q2", "b", story.ledger.declaring("q2"))
    with pytest.raises(Violation, match=r"a answered delete-ok for q1"):
        story.ledger.deleted("q1", "a", story.ledger.deleting("q1"))


def test_a_declared_queue_must_be_on_every_node(story):
    ledger = story.ledger
    ledger.declared("q", "a", ledger.declaring("q"))
    with pytest.raises(Violation, match=r"b has no queue q, which is present \(P6\)"):
        ledger.looked_up("q", "b", False)
    ledger.deleted("q", "a", ledger.deleting("q"))
    with pytest.raises(Violation, match="b has a queue q, which is absent"):
        ledger.looked_up("q", "b", True)


def test_a_binding_must_be_on_every_node(story):
    """A binding that a node does not route by is a violation, unless a node has failed, which may be the home of the
    queue.
    """
    story.ledger.bound("q", "b", True)
    with pytest.raises(Violation, match=r"b does not know the binding of q"):
        story.ledger.bound("q", "b", False)
    story.ledger.acks_may_be_lost()
    story.ledger.bound("q", "b", False)


def test_nodes_must_agree_on_a_queue_whose_declaration_was_not_answered(story):
    ledger = story.ledger
    ledger.declaring("q")
    ledger.check_queues(["a", "b"], lambda node, queue: True)
    assert ledger.queues() == ["q"]
    ledger.deleting("q")
    with pytest.raises(Violation, match="on some nodes only"):
        ledger.check_queues(["a", "b"], lambda node, queue: node == "a")
    ledger.check_queues(["a", "b"], lambda node, queue: False)
    assert ledger.queues() == []
