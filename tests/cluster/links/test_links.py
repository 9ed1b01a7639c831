"""Links between nodes in this process, over real sockets."""

from __future__ import annotations

import threading

import pytest

from warren.cluster.links.contract import to_links
from warren.runtime.errors import ProcessDown

from .nodes import to_peer, until, until_linked

NOCONNECTION = "noconnection: the connection to its system is lost"


@pytest.fixture
def pair(node):
    a, b = node("a"), node("b")
    a.set_peers(b)
    b.set_peers(a)
    until_linked(a, b)
    return a, b


def test_both_sides_hear_that_a_link_is_up(pair):
    a, b = pair
    assert a.look("events") == [("up", "b@h", "1")]
    assert b.look("events") == [("up", "a@h", "1")]
    row = until(lambda: (row := a.rows()["b@h"])["round_trip"] is not None and row, "no round trip")
    assert row["state"] == "up" and row["version"] == 1 and row["sessions"] == 1
    assert [lane["lane"] for lane in row["lanes"]] == ["control", "data", "bulk"]


@pytest.mark.parametrize("connector", [0, 1])
def test_one_side_is_enough_to_connect(node, connector):
    a, b = nodes = node("a"), node("b")
    nodes[connector].set_peers(nodes[1 - connector])
    until_linked(a, b)


def test_messages_keep_their_order(pair):
    a, b = pair
    for begin in range(0, 3_000, 500):
        a.ask("tell", "b@h", range(begin, begin + 500))
    until(lambda: len(b.look("numbers")) == 3_000, "not all have come")
    assert b.look("numbers") == list(range(3_000))


def test_what_a_turn_produces_leaves_as_one_frame(pair):
    a, b = pair
    before = a.rows()["b@h"]["lanes"][1]
    a.ask("tell", "b@h", range(1_000))
    until(lambda: len(b.look("numbers")) == 1_000, "not all have come")
    after = a.rows()["b@h"]["lanes"][1]
    assert after["sent_messages"] - before["sent_messages"] == 1_000
    assert after["sent_frames"] - before["sent_frames"] == 1


def test_asks_are_answered(pair):
    """An ask is answered, if need be with an error, also between processes that know each other only by an address they
    were sent.
    """
    a, b = pair
    assert a.ask("inquire", "b@h", to_peer.name("ab\udcff")) == "\udcffba"
    b.ask("tell", "a@h", [5])
    until(lambda: a.look("numbers") == [5], "it has not come")
    assert b.ask("inquire", "a@h", to_peer.heard()) == [5]
    assert a.ask("introduce", "b@h") is True
    until(lambda: a.look("numbers") == [5, 77], "the address did not lead back")
    with pytest.raises(ProcessDown, match="noproc"):
        a.ask("inquire", "b@h", to_peer.heard(), "nobody")


def test_a_message_that_is_not_listed_ends_its_sender(pair):
    """The process that sends such a message crashes, and the link stays up."""
    a, b = pair
    with pytest.raises(ProcessDown, match="steal is not listed"):
        a.ask("send", "b@h", ("steal", 1))
    assert a.rows()["b@h"]["state"] == b.rows()["a@h"]["state"] == "up"


def test_an_end_is_reported_after_everything_that_was_sent(pair):
    """The end of a process arrives after everything that it has sent (FC-21)."""
    a, b = pair
    a.ask("observe", "b@h")
    until(lambda: b.look("monitors") == 1, "the monitor has not come")
    a.ask("send", "b@h", to_peer.leave())
    until(lambda: a.look("downs") == [("b@h", "tired")], "the end was not reported")


def ask_in_a_thread(node, *message):
    outcome = []

    def inquire():
        try:
            outcome.append(node.ask(*message))
        except ProcessDown as down:
            outcome.append(str(down.reason))

    thread = threading.Thread(target=inquire)
    thread.start()
    return thread, outcome


def test_a_link_that_ends_fails_asks_and_monitors(pair):
    """When a link ends, the asks and monitors across it fail on both sides before `link_down`, and the link is made
    again.
    """
    a, b = pair
    a.ask("observe", "b@h")
    thread, outcome = ask_in_a_thread(a, "inquire", "b@h", to_peer.never())
    until(lambda: b.look("asked") == 1 and b.look("monitors") == 1, "they have not come")
    assert a.rows()["b@h"]["open"] == 2
    a.tell_links(to_links.disconnect("b@h", "a test"))
    thread.join(30)
    assert outcome == [NOCONNECTION]
    assert a.look("downs") == [("b@h", NOCONNECTION)]
    until(lambda: (b.look("asked"), b.look("monitors")) == (0, 0), "they are still there")
    until_linked(a, b)
    assert [event[0] for event in a.look("events")] == ["up", "down", "up"]
    until(lambda: [event[0] for event in b.look("events")] == ["up", "down", "up"], "b knows another story")
    assert a.ask("inquire", "b@h", to_peer.name("ab")) == "ba"


def test_a_node_that_starts_again_is_another_one(node, pair):
    """When a node starts again, monitors of its earlier run have fired, and the link is to the new run."""
    a, b = pair
    a.ask("observe", "b@h")
    until(lambda: b.look("monitors") == 1, "the monitor has not come")
    b.stop()
    until(lambda: a.look("downs"), "no end was reported")
    again = node("b", incarnation="2", cluster_port=b.place[1])
    again.set_peers(a)
    until_linked(a, again)
    assert a.look("events")[-1] == ("up", "b@h", "2")
    assert a.ask("inquire", "b@h", to_peer.name("ab")) == "ba"


def test_a_node_that_is_gone_is_noticed_at_once(pair):
    """When a node stops, its host refuses connections, so the other node counts it as gone at once, whichever side
    connected.
    """
    for stays, goes in (pair, pair[::-1]):
        if goes.base.is_closed():
            continue
        goes.stop()
        until(lambda stays=stays: any(event[0] == "refused" and event[3] for event in stays.look("events")), "nothing")
        break
    events = [event[0] for event in pair[0].look("events")]
    assert events[:2] == ["up", "down"]


def test_refused_attempts_are_counted(node):
    """A node counts its attempts to link that were refused, by reason: here the other node has another secret
    (CM-375).
    """
    a, b = node("a"), node("b", secret="another secret, long enough too")
    a.set_peers(b)
    row = until(lambda: (row := a.rows()["b@h"])["rejected"] and row, "it was not refused")
    assert set(row["rejected"]) == {"bad_secret"} and row["rejected"]["bad_secret"] >= 1


def test_three_nodes(node):
    nodes = [node(name) for name in "abc"]
    for one in nodes:
        one.set_peers(*[other for other in nodes if other is not one])
    until_linked(*nodes)
    for one in nodes:
        for other in nodes:
            if other is not one:
                one.ask("tell", other.name, range(10))
    for one in nodes:
        until(lambda one=one: len(one.look("numbers")) == 20, "not all have come")


def test_both_may_connect_at_once(node):
    """When both nodes connect at the same time, one session is left, and both use it."""
    a, b = node("a"), node("b")
    for _ in range(15):
        a.set_peers(b)
        b.set_peers(a)
        until_linked(a, b)
        assert a.ask("inquire", "b@h", to_peer.name("ab")) == "ba"
        assert b.ask("inquire", "a@h", to_peer.name("ab")) == "ba"
        a.set_peers()
        b.set_peers()
        until(lambda: not a.rows() and not b.rows(), "the link is still there")


def test_a_link_to_a_former_peer_ends(pair):
    a, b = pair
    a.set_peers()
    b.set_peers()
    until(lambda: not a.rows() and not b.rows(), "the link is still there")
    assert a.look("events")[-1][0] == "down"


@pytest.mark.parametrize("size", [1_000, 900_000, 5_000_000])
def test_large_contents_cross(pair, size):
    """Contents that are larger than a frame cross in parts."""
    a, b = pair
    contents = [bytes([number]) * size for number in range(4)]
    assert a.ask("inquire", "b@h", to_peer.take(contents)) == 4 * size
    assert a.ask("inquire", "b@h", to_peer.name("ab")) == "ba"


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_sender_of_contents_learns_when_the_link_is_full(pair, is_cut):
    """A process that sends contents is told once that the link is full, and once that it has room again or has ended
    (FC-20, CL-15).
    """
    a, b = pair

    def told():
        return [event for event in a.look("events") if event[0] in ("full", "free")]

    a.tell_links(to_links.hold("b@h", True, False))
    for _ in range(8):
        a.ask("send", "b@h", to_peer.take([b"x" * 1_000_000]))
    assert told() == []
    a.ask("tell", "b@h", [1])
    for _ in range(3):
        a.ask("send", "b@h", to_peer.take([b"x" * 1_000_000]))
    until(lambda: told() == [("full", "b@h")], "the sender was not told that the link is full")
    if is_cut:
        a.tell_links(to_links.disconnect("b@h", "a test"))
    else:
        a.tell_links(to_links.hold("b@h", False, False))
        until(lambda: b.look("taken") == 11_000_000, "not all has come")
    until(lambda: told() == [("full", "b@h"), ("free", "b@h")], "the sender was not told that the link has room")


def test_frames_wait_until_this_node_has_applied_enough(pair):
    """Frames on `data` wait until the receiver has applied as much of the log as their sender."""
    a, b = pair
    a.ask("apply", 7)
    a.ask("tell", "b@h", [1, 2])
    until(lambda: b.rows()["a@h"]["lanes"][1]["held"] > 0, "nothing is held")
    b.ask("apply", 6)
    assert b.look("numbers") == []
    b.ask("apply", 7)
    until(lambda: b.look("numbers") == [1, 2], "it was not let go")
    assert b.rows()["a@h"]["lanes"][1]["held"] == 0


def test_frames_wait_until_this_node_has_applied_what_their_sender_has_begun_to_apply(pair):
    """A process may act on the first part of a long entry of the log. Frames wait until the receiver has all of it, and
    a receiver that has begun with it as well does not have it yet (CL-36).
    """
    a, b = pair
    a.ask("begin_applying", 7)
    a.ask("tell", "b@h", [1, 2])
    until(lambda: b.rows()["a@h"]["lanes"][1]["held"] > 0, "nothing is held")
    b.ask("begin_applying", 7)
    assert b.look("numbers") == []
    b.ask("apply", 7)
    until(lambda: b.look("numbers") == [1, 2], "it was not let go")


def test_a_full_window_stops_reading(node):
    a, b = node("a"), node("b", link_data_window=1_048_576)
    a.set_peers(b)
    until_linked(a, b)
    a.ask("apply", 7)
    for _ in range(100):
        a.ask("send", "b@h", to_peer.take([b"x" * 250_000]))
    until(lambda: a.rows()["b@h"]["lanes"][1]["unsent"] > 8_388_608, "everything was read")
    held = b.rows()["a@h"]["lanes"][1]["held"]
    assert held < 4_000_000
    b.ask("apply", 7)
    until(lambda: b.look("taken") == 25_000_000, "not all has come")


def test_a_node_that_falls_silent(node):
    """Asks and monitors fail when a node sends nothing for twice `net_ticktime`, although its connections stay open, as
    with a machine that lost its power.
    """
    a, b = node("a", net_ticktime=0.5), node("b")
    a.set_peers(b)
    until_linked(a, b)
    a.ask("observe", "b@h")
    thread, outcome = ask_in_a_thread(a, "inquire", "b@h", to_peer.never())
    until(lambda: b.look("asked") == 1, "the ask has not come")
    go_on = b.base.pause()
    thread.join(30)
    assert outcome == [NOCONNECTION] and a.look("downs") == [("b@h", NOCONNECTION)]
    assert a.look("events")[1] == ("down", "b@h", "nothing has come for 1 s")
    go_on()
    until_linked(a, b)
    assert a.ask("inquire", "b@h", to_peer.name("ab")) == "ba"
