"""unit_queue_consumers_SUITE: a test for each of its cases (AB-124, AB-125), without a broker."""

from warren.actors.queue.consumers.consumer import ChannelRecord, Consumer
from warren.actors.queue.consumers.consumers import Consumers


def consumer(channel, tag, priority=0):
    return Consumer(channel, tag, True, False, 0, priority, (), "guest")


def a_set(single_active=False):
    """Three consumers on two channels."""
    first, second = ChannelRecord("c1", None), ChannelRecord("c2", None)
    members = [consumer(first, "a"), consumer(second, "a"), consumer(first, "b")]
    consumers = Consumers(single_active)
    for member in members:
        consumers.add(member)
    return consumers, members


def test_is_same():
    """A consumer is known by channel and tag: the same tag on another channel is another consumer."""
    consumers, (first, second, _) = a_set()
    assert consumers.find("c1", "a") is first
    assert consumers.find("c2", "a") is second


def test_get_consumer():
    """The next consumer in turn, or none of an empty set."""
    consumers, members = a_set()
    assert [share[0] for share in consumers.share(3)[0]] == members
    assert consumers.share(1)[0][0][0] is members[0]
    assert Consumers().share(1) == ([], 0)


def test_get():
    """Consumers are found by channel and tag only."""
    consumers, members = a_set()
    assert consumers.find("c2", "b") is None
    assert consumers.find("c3", "a") is None
    consumers.remove(members[0])
    assert consumers.find("c1", "a") is None
    assert consumers.find("c1", "b") is members[2]


def test_list_consumers():
    """All consumers in order of arrival; with single active consumer the first is active until it leaves."""
    consumers, members = a_set(single_active=True)
    assert list(consumers) == members
    assert consumers.active is members[0]
    consumers.remove(members[0])
    assert consumers.active is members[1]
    assert list(consumers) == members[1:]
    plain, _ = a_set()
    assert plain.active is None
