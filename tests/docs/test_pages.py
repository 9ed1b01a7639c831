"""The pages for users, README.md and docs/*.md: links, imports, and no references to the specification."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: The modules that a page may tell its readers to import.
PUBLIC_MODULES = {
    *("warren", "warren.extensions", "warren.sharding", "warren.simulation", "warren.simulation.strategies"),
    *("warren.spark", "warren.spark.jobs.archive", "warren.spark.jobs.flow", "warren.spark.jobs.query"),
}

parametrize_pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@parametrize_pages
def test_every_link_has_a_target(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@parametrize_pages
def test_every_anchor_has_a_heading(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", page.read_text()):
        text = (page.parent / target).read_text() if target else page.read_text()
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@parametrize_pages
def test_programs_import_public_modules_only(page):
    imported = re.findall(r"^\s*(?:from|import) (warren[\w.]*)", page.read_text(), re.MULTILINE)
    mentioned = re.findall(r"`(warren\.[a-z_.]+[a-z])`", page.read_text())
    assert {*imported, *mentioned} <= PUBLIC_MODULES


def test_generated_tables_are_up_to_date():
    """The generated tables are up to date; `make docs` writes them."""
    tables = runpy.run_path(str(ROOT / "docs" / "tables.py"))
    for name, heading, lines in tables["TABLES"]:
        text = (ROOT / "docs" / name).read_text()
        assert tables["with_table"](text, heading, lines()) == text, f"{name}, '{heading}': run make docs"


@parametrize_pages
def test_no_requirement_ids(page):
    """The pages cite no requirements, because their readers do not have the specification at hand."""
    assert re.findall(r"\b(?:AB|FC|QS|GM|CM|CL|QP|SP|[CDW])-\d+", page.read_text()) == []


@pytest.mark.parametrize(
    "page", [PAGES[0], *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_lines_have_at_most_120_columns(page):
    """Lines have at most 120 columns, except rows of tables and code."""
    long, is_code = [], False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        if not is_code and not is_fence and len(line) > 120 and not line.startswith(("|", "    ")):
            long.append(f"{number}: {line[:60]}")
    assert long == []


#: The pages that describe the code as it is. design.md also describes what is not built yet, so it is not among them.
CODE_PAGES = [
    ROOT / "docs" / "internals" / f"{name}.md" for name in ("architecture", "glossary", "simulation", "store")
]


@pytest.mark.parametrize("page", CODE_PAGES, ids=lambda page: page.name)
def test_names_of_code_exist(page):
    """Every class, and every function with an underscore in its name, that a page names in `code` exists under that
    name.
    """
    code = "\n".join(
        path.read_text("utf-8")
        for path in ROOT.rglob("*.py")
        if not path.relative_to(ROOT).parts[0].startswith(".") and path.relative_to(ROOT).parts[0] != "docs"
    )
    known = set(re.findall(r"\w+", code))
    for path in ROOT.rglob("*.py"):
        known |= {path.stem, path.parent.name}
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", page.read_text("utf-8"))
    names = {name for span in spans for name in re.findall(r"\b(?:[A-Z][a-z]+\w*|[a-z]+(?:_[a-z]+)+)\b", span)}
    assert sorted(names - known) == []
