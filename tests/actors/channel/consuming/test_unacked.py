"""Outstanding deliveries of a channel behave like a dict of delivery tags (AB-130 to AB-137, AB-117)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from warren.actors.channel.consuming.unacked import Unacked, UnackedRun

deliveries = st.tuples(
    st.just("deliver"), st.sampled_from("ab"), st.integers(1, 6), st.sampled_from([1, 3]), st.booleans()
)
settlements = st.tuples(st.just("take"), st.integers(0, 60), st.booleans())
ranges = st.tuples(st.just("take_range"), st.integers(1, 60), st.integers(0, 20))
others = st.sampled_from([("put_back",), ("commit",), ("take_all",), ("skip",)])


def spread(runs):
    """The deliveries of `runs` one by one: (delivery tag, queue, consumer tag, ack tag, delivered at)."""
    return [
        (run.first + offset, run.source.queue_id, run.consumer_tag, tag, run.delivered_at)
        for run in runs
        for offset, tag in enumerate(run.tags)
    ]


@given(st.lists(st.one_of(deliveries, settlements, ranges, others), max_size=60))
@settings(max_examples=200, deadline=None)
def test_unacked_is_a_dict_of_delivery_tags(steps):
    """Single, multiple and unknown tags in any order, with rollbacks of a transaction in between."""
    unacked, model, taken = Unacked(), {}, []
    next_tag = 1
    for name, *fields in steps:
        if name == "deliver":
            queue_id, count, step, as_range = fields
            tags = range(next_tag * 100, next_tag * 100 + count * step, step)
            unacked.add(
                UnackedRun(
                    next_tag,
                    unacked.source(queue_id),
                    f"tag-{queue_id}",
                    tags if as_range else list(tags),
                    float(next_tag),
                )
            )
            model.update(
                {
                    next_tag + offset: (queue_id, f"tag-{queue_id}", tag, float(next_tag))
                    for offset, tag in enumerate(tags)
                }
            )
            next_tag += count
        elif name == "skip":
            next_tag += 1  # a no-ack delivery uses up its tag
        elif name in ("take", "take_all"):
            tag, multiple = fields or (0, True)
            found = unacked.take(tag, multiple)
            if multiple:
                known = tag == 0 or tag in model
                expected = sorted(number for number in model if number <= tag or tag == 0)
            else:
                known = tag in model
                expected = [tag]
            if not known:
                assert found is None
                continue
            assert spread(found) == [(number, *model.pop(number)) for number in expected]
            taken += found
        elif name == "take_range":
            first, count = fields
            expected = list(range(first, first + count + 1))
            is_known = all(number in model for number in expected)
            assert unacked.has_range(first, first + count) is is_known
            found = unacked.take_range(first, first + count)
            if not is_known:
                assert found is None
                continue
            assert spread(found) == [(number, *model.pop(number)) for number in expected]
            taken += found
        elif name == "put_back":
            unacked.put_back(taken)
            model.update({number: tuple(rest) for number, *rest in spread(taken)})
            taken = []
        else:
            taken = []
        assert spread(unacked) == [(number, *model[number]) for number in sorted(model)]
        assert len(unacked) == unacked.count == len(model)
        assert (unacked.oldest.first if unacked.oldest else None) == min(model, default=None)


def test_settled_runs_are_let_go():
    """Settled runs are freed, so a consumer that acknowledges in order for ever does not make the list grow."""
    unacked = Unacked()
    for tag in range(1, 5001):
        unacked.add(UnackedRun(tag, unacked.source("q"), "c", [tag], 0.0))
        if tag > 10:
            assert unacked.take(tag - 10, tag % 2 == 0)
    assert len(unacked) == 10 and len(unacked._runs) == 10
