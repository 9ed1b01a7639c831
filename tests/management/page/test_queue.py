"""What the page shows of a single queue beside its messages, and the forms that add and delete one. The broker has a
data directory, because only then it has a message index and layers on the disk.
"""

import re
from urllib.parse import quote

import pytest

from warren import Broker
from warren.definitions.policy_keys import CHECKS, OPERATOR_KEYS
from warren.routing.queue_types import QUEUE_TYPES

from ..conftest import ports


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {"management": True, "management_port": 0, "prometheus_port": 0, "management_interval": 100}
    with Broker(data_dir=tmp_path_factory.mktemp("data"), **settings) as broker:
        ports(broker)
        yield broker


def address(name):
    return f"#/queues/%2F/{quote(name, safe='')}"


def names_in(driver, expression):
    """The names of the shortcuts in groups of `keys.js`."""
    return driver.execute_async_script(
        "const [done] = arguments; import('./keys.js').then(({QUEUE_ARGUMENTS, POLICY_KEYS, OPERATOR_KEYS}) => done("
        f"  ({expression}).flatMap(([, names]) => names.map(([name]) => name))));"
    )


def test_each_known_argument_and_key_can_be_chosen(screen, driver):
    """Each argument that a type of queue accepts is offered for that type, and each key of policies for policies
    (CM-405, CM-410).
    """
    for name, kind in QUEUE_TYPES.items():
        assert set(names_in(driver, f"QUEUE_ARGUMENTS.{name}")) == kind.arguments - {"x-queue-type"}, name
    assert set(names_in(driver, "POLICY_KEYS")) == CHECKS.keys()
    assert set(names_in(driver, "OPERATOR_KEYS")) == OPERATOR_KEYS


def test_a_queue_of_any_type_is_added(screen, broker):
    """The form offers the arguments of the type that is chosen, with values of the right type (CM-405)."""
    screen.go("#/queues")
    screen.unfold("Add a queue")
    assert "x-max-priority" in screen.texts(".shortcut")
    screen.fill("Add a queue", name="<quorum>", type="quorum")
    screen.until(lambda: "<quorum>" in screen.text("main .list tbody"))
    assert broker.queue("<quorum>").arguments["x-queue-type"] == "quorum"
    assert "x-max-priority" not in screen.texts(".shortcut")
    screen.until(lambda: screen.click_text(".shortcut", "x-delivery-limit"))
    screen.driver.switch_to.active_element.send_keys("7")
    screen.fill("Add a queue", name="limited")
    screen.until(lambda: "limited" in screen.text("main .list tbody"))
    assert broker.queue("limited").arguments["x-delivery-limit"] == 7
    for name in ("<quorum>", "limited"):
        broker.delete_queue(name)


def test_a_queue_is_deleted_only_if_it_is_empty(screen, broker, api):
    """A queue with a message stays if the user deletes it only if it is empty, and the reason is shown (CM-406)."""
    broker.declare_queue("full", durable=True)
    broker.publish(b"x", "full")
    screen.go(address("full"))
    screen.until(lambda: "Ready\n1" in screen.text("main"))
    screen.press("Delete")
    screen.click("dialog [name=if-empty]")
    screen.press("Delete queue", "dialog")
    screen.shows("queue 'full' in vhost '/' not empty", "#messages")
    (complaint,) = screen.complaints()
    assert "if-empty=true" in complaint and "400" in complaint
    screen.press("Delete")
    screen.click("dialog [name=if-unused]")
    screen.press("Delete queue", "dialog")
    screen.until(lambda: screen.driver.current_url.endswith("#/queues"))
    assert api("GET", "/api/queues/%2F/full")[0] == 404


def test_messages_of_an_indexed_queue_are_found(screen, broker):
    """A user finds a message by its key or its id, also one that has left the queue, and reads why there is none in a
    queue without an index (CM-407).
    """
    broker.set_policy("traced", "^traced$", {"message-index": "key"}, apply_to="queues")
    broker.declare_queue("traced", durable=True)
    broker.publish("body <b>", "traced", message_id="m/1?#", delivery_mode=2)
    broker.publish("gone", "traced", message_id="m2", delivery_mode=2)
    screen.go(address("traced"))
    screen.unfold("Find messages")
    screen.fill("Find messages", text="m/1?#")
    screen.until(lambda: screen.texts(".payload") == ["body <b>"])
    assert "1 message, the newest first." in screen.text("main details[open]")
    assert broker.get("traced").body == b"body <b>"

    def settled():
        screen.fill("Find messages", by="id", text="m/1?#")
        return "State\nacked" in screen.text("main details[open]")

    screen.until(settled)
    screen.fill("Find messages", by="key", text="nosuch")
    screen.shows("The index has no such message.", "main details[open]")
    broker.delete_queue("traced")
    broker.clear_policy("traced")


def test_the_layers_of_the_store_are_a_bar(screen, broker):
    """The bar shows how many messages each sub-queue has, and a queue without messages has none (CM-407)."""
    broker.declare_queue("lazy", durable=True, arguments={"x-queue-mode": "lazy"})
    screen.go(address("lazy"))
    screen.until(lambda: "Ready\n0" in screen.text("main"))
    assert not screen.find(".layers").is_displayed()
    for _ in range(3):
        broker.publish(b"x", "lazy", delivery_mode=2)
    screen.until(lambda: screen.all(".layers rect"))

    def lengths():
        return dict(zip(("q4", "q3", "delta", "q2", "q1"), screen.texts(".layers .value")))

    # The page may show the first message before the others.
    screen.until(lambda: int(lengths()["delta"]) + int(lengths()["q3"]) == 3)
    assert [lengths()[name] for name in ("q4", "q2", "q1")] == ["0", "0", "0"]
    broker.delete_queue("lazy")


def test_a_paced_queue_shows_its_pace(screen, broker):
    """A paced queue shows its rate, how many messages wait, and how long a new one would wait (CM-407)."""
    broker.set_policy("paced", "^paced$", {"pace-rate": 2, "pace-period-ms": 3_600_000}, apply_to="queues")
    broker.declare_queue("paced", durable=True)
    for _ in range(3):
        broker.publish(b"x", "paced")
    screen.go(address("paced"))
    screen.until(lambda: "Pace\n2 in 1 h 0 min, for each queue" in screen.text("main"))
    screen.until(lambda: "Waiting for a slot\n3" in screen.text("main"))
    assert re.search(r"A new message waits\n\d h", screen.text("main"))
    broker.delete_queue("paced")
    broker.clear_policy("paced")


def test_a_mirror_that_lacks_messages_is_synchronised(screen, driver, broker):
    """The ring of a queue says which mirrors lack messages, and offers to have them copy the queue, or to stop that.
    It is drawn from made-up members, because a broker without a cluster has no mirrors (CM-406).
    """
    waiting = {"role": "learner", "stage": "waiting", "lag": 0, "unstored": 0, "messages": 0, "received": 1}
    master = {**waiting, "node": "a@h", "role": "master", "stage": "following", "messages": 5000}
    learner = {**waiting, "node": "<b>@h"}
    broker.declare_queue("mirrored", durable=True)
    copying = {**learner, "stage": "copying", "messages": 1200}
    progress = {"left": 3800, "bytes_per_second": 3 << 19, "seconds_left": 130, "alarms": ["disk"]}
    fast = (
        "<b>@h is being synchronised: it has 1,200 of 5,000 messages, lacks 3,800, gets 1.5 MiB/s,"
        " about 2 min are left, waits until the disk alarm of its node is cleared."
    )
    for members, words, button in (
        ([master, learner], "<b>@h is not synchronised", "Synchronise"),
        ([master, copying], "<b>@h is being synchronised: it has 1,200 of 5,000 messages.", "Cancel"),
        ([master, {**copying, **progress}], fast, "Cancel"),
    ):
        draw_ring(driver, members)
        screen.shows(words, ".sync")
        assert [text for text in screen.texts(".sync button") if text] == [button]
        screen.press(button, ".sync")
    screen.shows("The mirrors have stopped copying.", "#messages")
    draw_ring(driver, [master, {**learner, "role": "mirror"}])
    assert not screen.find(".sync").is_displayed()
    broker.delete_queue("mirrored")


def draw_ring(driver, members):
    driver.execute_async_script(
        "const [members, done] = arguments;"
        "import('./ring.js').then(({ring}) => {"
        "  const drawn = ring('/', 'mirrored', () => {});"
        "  drawn.sources[0].take({epoch: 1, reign: 1, missing: [], evicted: [], members});"
        "  document.querySelector('main').replaceChildren(drawn.element); done();"
        "});",
        members,
    )


def test_what_one_does_not_see_in_a_name_has_marks(screen, driver, broker):
    """Spaces at the ends of a name and characters that turn the text around are shown as marks, and the name is found
    under its link (CM-386).
    """
    name = " a  b\u202e "
    broker.declare_queue(name, durable=True)
    screen.go("#/queues")
    screen.until(lambda: screen.click_text("main .list tbody a", "␣a␣␣b[U+202E]␣"))
    screen.shows("␣a␣␣b[U+202E]␣", "h1")
    screen.until(lambda: "Ready\n0" in screen.text("main"))
    shown = driver.execute_async_script(
        "const [done] = arguments; import('./format.js').then(({visible}) => done("
        "  ['a b', 'two\\nlines\\0', 'žluťoučký 🐇', ''].map(visible)));"
    )
    assert shown == ["a b", "two␊lines␀", "žluťoučký 🐇", ""]
    broker.delete_queue(name)


def test_a_queue_without_an_index_says_so(screen, broker):
    """A search in a queue that is not indexed says how it would be (CM-407)."""
    broker.declare_queue("untraced", durable=True)
    screen.go(address("untraced"))
    screen.unfold("Find messages")
    screen.fill("Find messages", text="m1")
    screen.shows("The queue is not indexed. Give it a policy with the key message-index.", "main details[open]")
    broker.delete_queue("untraced")


def test_messages_are_moved(screen, broker, api):
    """The page moves all ready messages to another queue and says how many, and shows why it could not (CM-406)."""
    for name in ("here", "there"):
        broker.declare_queue(name, durable=True)
    for number in range(3):
        broker.publish(b"%d" % number, "here")
    screen.go(address("here"))
    screen.until(lambda: "Ready\n3" in screen.text("main"))
    screen.unfold("Move messages")
    screen.fill("Move messages", destination="nowhere")
    screen.shows("no queue 'nowhere' in vhost '/'")
    (complaint,) = screen.complaints()
    assert "/move" in complaint and "404" in complaint
    screen.fill("Move messages", destination="there", count="2")
    screen.shows("Moved 2 of 2 messages to queue 'there'.")
    screen.until(lambda: "Ready\n1" in screen.text("main"))
    screen.fill("Move messages", destination="there", count="")
    screen.shows("Moved 1 of 1 message to queue 'there'.")
    assert [broker.get("there").body for _ in range(3)] == [b"0", b"1", b"2"]
    for name in ("here", "there"):
        broker.delete_queue(name)
