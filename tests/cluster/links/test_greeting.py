"""Each scenario in tests/testdata/links is a greeting of two nodes, named after the story that it tells."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.cluster.links.admission import LinkIdentity
from warren.cluster.links.greeting import Acceptor, Connector
from warren.tests.conversations import check, files

from .conversation import played


@pytest.mark.parametrize("path", files("links", least=12), ids=lambda path: path.stem)
def test_a_scenario_goes_as_it_is_written(path):
    check(path, played)


A, B = LinkIdentity("a@h", "id-a", "1"), LinkIdentity("b@h", "id-b", "1")


@given(st.lists(st.integers(1, 60), max_size=40))
def test_a_greeting_may_be_cut_anywhere(sizes):
    """A greeting succeeds in whatever pieces its bytes arrive."""
    sides = [Connector(A, b"k", b"1" * 32, "b@h", "data", "5e" * 16), Acceptor(B, b"k", b"2" * 32)]
    data, receiver, ends = sides[0].hello(), 1, []
    while data:
        reply = b""
        while data:
            size = sizes.pop() if sizes else len(data)
            step = sides[receiver].feed(data[:size])
            data = data[size:]
            reply += step.reply
            if step.greeted is not None:
                ends.append((receiver, step.greeted.peer.node))
        data, receiver = reply, 1 - receiver
    assert ends == [(1, "a@h"), (0, "b@h")]


@given(st.data())
def test_a_changed_byte_is_noticed(data):
    """If an attacker changes any byte of a greeting, the nodes are not linked, or both have agreed on the
    same values.
    """
    sides = [Connector(A, b"k", b"1" * 32, "b@h", "data", "5e" * 16), Acceptor(B, b"k", b"2" * 32)]
    number, at, value = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 600)), data.draw(st.integers(0, 255))
    sent, receiver, greeted = sides[0].hello(), 1, []
    for frame in range(4):
        if frame == number:
            at %= len(sent)
            is_changed = sent[at] != value
            sent = sent[:at] + bytes((value,)) + sent[at + 1 :]
        step = sides[receiver].feed(sent)
        if step.greeted is not None:
            greeted.append(step.greeted)
        sent, receiver = step.reply, 1 - receiver
        if not sent:
            break
    assert greeted == [] or not is_changed
