"""How conversations are read and played: their errors name file and line, and a `hold` that holds nothing
is an error.
"""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from warren.cli.programs.simulate import simulate as command
from warren.simulation.conversations.conversation import (
    Conversation,
    ConversationError,
    CrashCommand,
    HoldCallsCommand,
    HoldCommand,
    ProcessName,
    ReleaseCommand,
    WaitCommand,
    parse_conversation,
)
from warren.simulation.conversations.playing import ConversationBroken, Player

END = "\nend\n----\n"


def play(text, seed=None):
    conversation = parse_conversation(text, "story.txt")
    return conversation.with_reports(Player(conversation, seed).play())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "story.txt:1: a conversation begins with"),
        ("# nothing", "story.txt:1: a plan begins with"),
        ("node store=1 queues=nowhere\n" + END, "story.txt:1: there is no queue 'nowhere'"),
        ("node store=1\nalice/1 get queue=orders\n" + END, "story.txt:1: an empty line must follow"),
        ("node store=1\n\nalice/1 get queue=orders\n" + END, "story.txt:3: '----' must follow"),
        ("node store=1\n\n# only a comment\n----\n" + END, "story.txt:3: a step has no command"),
        ("node store=1\n\n# first\nalice/1 get queue\n----\n" + END, "story.txt:4: 'queue' is not key=value"),
        ("node store=1\n\ndave/1 get\n----\n" + END, "story.txt:3: 'dave/1' is no command and no client"),
        ("node store=1\n\nalice/1 get then=3\n----\n" + END, "story.txt:3: 'then' has no meaning"),
        ("node store=1\n\nhold publish\n----\n" + END, "story.txt:3: a hold is"),
        ("node store=1\n\nhold publish of queue to queue\n----\n" + END, "story.txt:3: 'from' or 'to' must follow"),
        ("node store=1\n\nhold publish to shelf\n----\n" + END, "story.txt:3: 'shelf' is no process"),
        ("node store=1\n\ncrash journal x\n----\n" + END, "story.txt:3: 'journal x' has too many words"),
        ("node store=1\n\ncrash queue at\n----\n" + END, "story.txt:3: the name of one message must follow 'at'"),
        ("node store=1\n\nwait soon\n----\n" + END, "story.txt:3: 'wait' is no command"),
        ("node store=1\n\nalice/1 get queue=orders\n----\n", "story.txt:4: a conversation ends with its only 'end'"),
        ("node store=1\n" + END + END, "story.txt:7: a conversation ends with its only 'end'"),
    ],
)
def test_a_text_that_is_no_conversation_is_refused(text, complaint):
    with pytest.raises(ConversationError) as caught:
        parse_conversation(text, "story.txt")
    assert str(caught.value).startswith(complaint)


def test_commands_are_read():
    text = (
        "node store=1\n\n"
        "hold durable from journal to queue orders\nhold calls of store persistent\ncrash channel bob/1\n"
        "crash queue orders at delete\ncrash queue after publish\nrelease durable\nrelease\nwait 20\n----\n" + END
    )
    conversation = parse_conversation(text)
    assert isinstance(conversation, Conversation)
    assert conversation.steps[0].commands == (
        HoldCommand("durable", ProcessName("queue", "orders"), ProcessName("journal")),
        HoldCallsCommand(ProcessName("store", "persistent")),
        CrashCommand(ProcessName("channel", "bob/1")),
        CrashCommand(ProcessName("queue", "orders"), "at", "delete"),
        CrashCommand(ProcessName("queue"), "after", "publish"),
        ReleaseCommand("durable"),
        ReleaseCommand(),
        WaitCommand(0.02),
    )


PUBLISH = "alice/1 publish queue=orders count=1 persistent=1 size=20\n----\n"


def test_what_follows_is_written_after_each_step():
    text = "# A comment.\nnode store=1 queues=orders\n\n# Another.\n" + PUBLISH + END
    assert play(text) == (
        "# A comment.\nnode store=1 queues=orders\n\n# Another.\n"
        "alice/1 publish queue=orders count=1 persistent=1 size=20\n----\n"
        "alice/1  publishes message 1 to orders (persistent, 20 bytes)\n"
        "alice/1  receives the confirm of message 1\n\n"
        "end\n----\n"
        "auditor  closes its connection\nauditor  has closed its connection\n"
        "auditor/2 consumes from orders as c1\nauditor/2 receives message 1 from orders as c1\n"
        "auditor/2 acknowledges message 1\n"
    )


@pytest.mark.parametrize("seed", [None, *range(10)])
@pytest.mark.parametrize(
    "hold",
    [
        "hold durable from journal to queue orders",
        "hold calls of journal",
        "hold confirm to channel alice/1",
        "hold publish from channel alice/1 to queue orders",
        "hold input to channel alice/1",
        "hold output to connection alice",
    ],
)
def test_what_is_held_happens_when_it_is_released(hold, seed):
    text = f"node store=1 queues=orders\n\n{PUBLISH}\n{hold}\n{PUBLISH}\nrelease\n----\n{END}"
    steps = play(text, seed).split("\n\n")
    assert "receives the confirm of message 1" in steps[1]
    assert "receives the confirm of message 2" not in steps[2]
    assert steps[3].splitlines() == ["release", "----", "alice/1  receives the confirm of message 2"]


def test_only_the_named_hold_is_released():
    text = (
        "node store=1 queues=orders\n\n" + PUBLISH + "\nhold confirm to channel alice/1\nhold publish to queue\n"
        "alice/1 publish queue=orders count=1 persistent=1 size=20\n----\n\n"
        "release publish\n----\n\nrelease confirm\n----\n" + END
    )
    steps = play(text).split("\n\n")
    assert steps[3] == "release publish\n----"
    assert steps[4] == "release confirm\n----\nalice/1  receives the confirm of message 2"


@pytest.mark.parametrize("seed", [None, *range(10)])
def test_what_a_sender_sends_after_a_held_message_waits_behind_it(seed):
    """A hold delays a message as a scheduler may, and later messages from its sender to its receiver wait behind it."""
    text = (
        "node store=0 queues=orders\n\nalice/2 publish queue=orders count=1 size=20\n----\n\n"
        "hold publish from channel alice/2 to queue orders\n"
        "alice/2 publish queue=orders count=1 size=20\nalice/2 consume queue=orders\n----\n\n"
        "release\n----\n" + END
    )
    steps = play(text, seed).split("\n\n")
    assert "receives" not in steps[2]
    assert steps[3].splitlines()[2:] == [
        "alice/2  receives message 1 from orders as c1",
        "alice/2  receives message 2 from orders as c1",
    ]


@pytest.mark.parametrize(
    ("commands", "complaint"),
    [
        (
            "hold flush_synced to queue\n----\n\nrelease\n----\n",
            "story.txt:6: the hold of 'flush_synced' has held nothing",
        ),
        ("release\n----\n", "story.txt:3: nothing of this name is held"),
        ("hold publish to queue\n----\n", "story.txt:6: 'publish' is held and never released"),
        ("crash queue orders\n----\n", "story.txt:3: there is no queue orders to crash"),
        ("crash queue orders at delete\n----\n", "story.txt:6: queue orders has not crashed: no message 'delete' came"),
    ],
)
def test_a_command_without_effect_fails(commands, complaint):
    """A command without effect is an error. Otherwise a conversation would pass for ever after a message in it was
    renamed.
    """
    with pytest.raises(ConversationBroken) as caught:
        play("node store=0 queues=orders\n\n" + commands + END)
    assert str(caught.value).startswith(complaint)


def simulate(tmp_path, text, *options):
    file = tmp_path / "story.txt"
    file.write_text(text)
    return CliRunner().invoke(command, ["--conversation", str(file), *options])


def test_warren_simulate_plays_a_conversation(tmp_path):
    text = play("node store=1 queues=orders\n\n" + PUBLISH + END)
    result = simulate(tmp_path, text, "--schedules", "3")
    assert (result.exit_code, result.stdout) == (0, text)


def test_warren_simulate_shows_the_order_in_which_something_else_follows(tmp_path):
    """`warren simulate` shows an order of a conversation in which something else follows: here two clients publish at
    once, and it is open which message is the first in the queue.
    """
    publish = "/2 publish queue=orders count=1 size=20\n"
    text = (
        f"node store=0 queues=orders\n\nalice{publish}----\n\nbob{publish}----\n\nalice{publish}bob{publish}----\n{END}"
    )
    result = simulate(tmp_path, text, "--schedules", "30")
    assert result.exit_code == 1
    assert "In the order of seed" in result.stdout


def test_warren_simulate_refuses_what_is_no_conversation(tmp_path):
    result = simulate(tmp_path, "node store=1\n")
    assert result.exit_code
    assert "story.txt:1: a conversation ends with its only 'end'" in result.output
