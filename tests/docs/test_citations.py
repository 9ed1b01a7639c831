"""Every requirement and section that the code, the tests and the documents cite exists in the specification."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "docs" / "spec"
#: The documents whose sections may be cited, by their name in citations.
DOCUMENTS = {
    **{path.stem: path for path in sorted(SPEC.glob("*.md"))},
    "design": ROOT / "docs" / "internals" / "design.md",
}
#: Pages for users, who do not read the specification.
USER_PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
SKIPPED = {".venv", "build", "dist", "node_modules", ".git", ".mypy_cache", ".ruff_cache", ".hypothesis"}
SUFFIXES = {".py", ".md", ".txt", ".toml", ".cfg", ".c", ".js", ".ini"}

CITED_ID = re.compile(r"(?<![\w-])(AB|FC|QS|CM|CL|QP|SP|D|C)-(\d+)(?![\w-])")
DEFINED_ID = re.compile(r"\*\*((?:AB|FC|QS|CM|CL|QP|SP|D|C)-\d+)\*\*")
HEADING = re.compile(r"^#+ (\d+(?:\.\d+)*)\.? ", re.MULTILINE)
#: A list such as "sections 6.7, 6.9 and 11.4" cites each of its numbers.
CITED_SECTION = re.compile(r"(?:(RFC \d+|\S+) )?(?:[Ss]ections?|§) ?(\d+(?:\.\d+)*(?:(?:, | and | to )\d+(?:\.\d+)*)*)")


def sources():
    """All files that may cite: code, tests, documents, scenarios."""
    for path in sorted(ROOT.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file() and not SKIPPED.intersection(path.relative_to(ROOT).parts):
            yield path


def _texts():
    for path in sources():
        if path != Path(__file__).resolve():
            # A citation may be broken across two lines of a comment.
            yield path, re.sub(r"\s*\n\s*(?:#:?|>)?\s*", " ", path.read_text("utf-8", "replace"))


@pytest.fixture(scope="module")
def texts():
    return list(_texts())


@pytest.fixture(scope="module")
def defined():
    found = [match for path in DOCUMENTS.values() for match in DEFINED_ID.findall(path.read_text("utf-8"))]
    assert len(found) > 300, "the specification defines more requirements than that"
    return found


def test_each_requirement_is_defined_once(defined):
    assert sorted({name for name in defined if defined.count(name) > 1}) == []


def test_cited_requirements_exist(texts, defined):
    known = set(defined)
    unknown = sorted(
        f"{path.relative_to(ROOT)}: {prefix}-{number}"
        for path, text in texts
        for prefix, number in set(CITED_ID.findall(text))
        if f"{prefix}-{number}" not in known
    )
    assert unknown == []


def test_cited_sections_exist(texts):
    """A citation names the document and the section: "queue-and-store section 6.10"."""
    sections = {name: set(HEADING.findall(path.read_text("utf-8"))) for name, path in DOCUMENTS.items()}
    wrong = []
    for path, text in texts:
        within = path.stem if path in DOCUMENTS.values() else None
        for name, numbers in CITED_SECTION.findall(text):
            if name.startswith("RFC "):
                continue
            name = name.strip("`*(),.:;[]\"'").removesuffix(".md").lower()
            document = name if name in sections else within
            if document is None:
                wrong.append(f"{path.relative_to(ROOT)}: section {numbers} of no document ({name!r})")
                continue
            for number in re.findall(r"\d+(?:\.\d+)*", numbers):
                if number not in sections[document]:
                    wrong.append(f"{path.relative_to(ROOT)}: {document} has no section {number}")
    assert wrong == []


def test_user_pages_cite_no_requirements():
    cited = {
        f"{path.relative_to(ROOT)}: {prefix}-{number}"
        for path in USER_PAGES
        for prefix, number in CITED_ID.findall(path.read_text("utf-8"))
    }
    assert sorted(cited) == []
