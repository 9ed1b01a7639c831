"""The glossary lists words that the code uses, and the code uses no word that the glossary has replaced."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "glossary.md"
ENTRY = re.compile(r"^- \*\*(.+?)\*\*: (.*?)(?=^- \*\*|^#|\Z)", re.MULTILINE | re.DOTALL)
#: Folders without the package's own code.
SKIPPED = {"tests", "docs", "build", "dist"}

#: Each word that has been replaced, as a regular expression, the word to write instead, and where the old word is
#: right.
REPLACED = [
    ("fold|folds|folded|folding|unfolded", "flush", {"store/queue/backing_queue.py"}),  # RabbitMQ's name of a call
    ("octets?", "byte", {"amqp/"}),  # the AMQP protocol's own word
    ("portions?", "batch", set()),
    ("looking", "peek", set()),
    # The three kinds of leases that the glossary allows: a node's, a query's, and that of slots.
    (
        "leases?",
        "queue expiry",
        {
            "cluster/",
            "actors/channel/direct_client.py",
            "actors/connection/process.py",
            "actors/context/lease.py",
            "actors/pace/",
            "actors/contracts/pace.py",
            "actors/contracts/queue.py",
            "actors/queue/pacing/",
            "actors/queue/process.py",
            "actors/queue/role.py",
            "actors/queue/master/master.py",
            "docs/internals/architecture.md",
            "docs/pacing.md",
            "docs/spec/query-pacing-remoting.md",
            "actors/context/node_context.py",
            "actors/contracts/membership.py",
            "actors/node/operations/operating/cluster.py",
            "actors/node/operations/observing/status.py",
            "cli/operating/cluster_commands.py",
            "docs/spec/cli",
            "CHANGELOG.md",
            "docs/cluster.md",
            "docs/internals/c",
            "docs/internals/simulation.md",
            "mirror/",
            "actors/queue/mirroring.py",
            "simulation/cluster/",
            "spark/reading/planner.py",
        },
    ),
    ("on[ _]their[ _]way", "in flight", set()),
    ("patience", "a timeout", set()),
    ("durable_?tables", "table writer", set()),
    ("restart_?waits", "restart waiters", set()),
    ("(?:limiter|prefetch|free|channel)_slots", "grant", set()),
]


def sources():
    """The package's own modules and the pages, as (path below the root, text)."""
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/internals/*.md")]:
        if page != PAGE:
            yield str(page.relative_to(ROOT)), page.read_text("utf-8")

    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT)
        if name.parts[0] not in SKIPPED and not name.parts[0].startswith("."):
            yield str(name), path.read_text("utf-8")


@pytest.fixture(scope="module")
def texts():
    return dict(sources())


@pytest.fixture(scope="module")
def entries():
    """Each term and its explanation."""
    found = [(term, re.sub(r"\s+", " ", text).strip()) for term, text in ENTRY.findall(PAGE.read_text("utf-8"))]
    assert len(found) > 50, "the glossary has more entries than that"
    return found


def words_apart(text):
    """The text with a space between the words of names such as `FlushJob`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)


def words_found(expression, apart):
    """The words that the expression finds in prose and in identifiers: `flush` in "a flush", `take_flush` and
    `FlushJob`.
    """
    return re.findall(rf"(?<![a-z])(?:{expression})(?![a-z])", apart, re.IGNORECASE)


def test_each_term_stands_once_and_in_order(entries):
    terms = [term for term, _ in entries]
    assert terms == sorted(set(terms))


def test_each_term_is_one_sentence_that_names_a_module(entries):
    wrong = []
    for term, text in entries:
        modules = re.findall(r"\(`([\w/]+\.py)`\)\.$", text)
        # The explanation is one sentence, at whose end the module stands.
        if len(modules) != 1 or not (ROOT / modules[0]).is_file() or re.search(r"\. [A-Z]", text):
            wrong.append(term)
    assert wrong == []


def test_the_module_of_a_term_uses_it(entries, texts):
    unused = []
    for term, text in entries:
        (module,) = re.findall(r"\(`([\w/]+\.py)`\)\.$", text)
        # "range reader" may also be written `range_readers` or `RangeReader`.
        if not re.search(rf"(?<![a-z]){re.sub(r'[ -]', '[ _-]?', term)}", texts[module], re.IGNORECASE):
            unused.append(f"{term}: {module}")
    assert unused == []


def test_replaced_words_are_gone(texts):
    found = []
    apart = {name: words_apart(text) for name, text in texts.items()}
    for expression, instead, allowed in REPLACED:
        for name, text in apart.items():
            if name.startswith(tuple(allowed)) or not words_found(expression, text):
                continue
            for number, line in enumerate(text.splitlines(), 1):
                found += [f"{name}:{number}: '{hit}', write {instead}" for hit in words_found(expression, line)]
    assert found == []


@pytest.mark.parametrize("text", ["to fold the journal", "take_fold()", "class FoldingJob:", "300 octets"])
def test_a_replaced_word_is_found(text):
    assert any(words_found(expression, words_apart(text)) for expression, _, _ in REPLACED)


@pytest.mark.parametrize("text", ["ackfold", "manifold", "a portionless thing", "please", "overlooking it"])
def test_a_word_that_only_contains_one_is_not(text):
    assert not any(words_found(expression, words_apart(text)) for expression, _, _ in REPLACED)
