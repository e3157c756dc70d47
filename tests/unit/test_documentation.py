"""The documentation names what the product has, and the pages that a newcomer reads are kept readable."""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from producer.stops import CAUSES
from rowlock.cli import main
from schemas.config.load import NOT_YET
from tools.docs.markers import fill_markers
from tools.docs.overview import PICTURES, Labels, draw

ROOT = Path(__file__).resolve().parents[2]
TROUBLESHOOTING = ROOT / "docs" / "how-to" / "troubleshoot.md"
#: What a newcomer reads, in a terminal or an editor, too.
READ_FIRST = (
    "README.md",
    "README.zh.md",
    "docs/README.md",
    "docs/reference/cli.md",
    *(f"docs/{folder}/*.md" for folder in ("how-to", "tutorial", "zh")),
)
CHARACTERS_IN_A_LINE = 160


def list_causes(text: str) -> set[str]:
    """Return the causes that a module gives by name to its errors."""
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    values = (keyword.value for call in calls for keyword in call.keywords if keyword.arg == "cause")
    return {value.value for value in values if isinstance(value, ast.Constant)}


def test_each_cause_of_a_stop_has_a_line_in_troubleshooting() -> None:
    page = TROUBLESHOOTING.read_text()
    described = set(re.findall(r"^\| `([\w-]+)` \|", page.partition("## By cause")[2], re.MULTILINE))
    modules = [path for package in ("consumer", "producer") for path in (ROOT / package).rglob("*.py")]
    given = set[str]().union(*(list_causes(path.read_text()) for path in modules))
    assert given >= {"gap", "event", "key", "partial", "policy"}, "causes of the apply side are found"
    assert described == CAUSES.keys() | given


def test_a_cause_in_the_code_is_found() -> None:
    assert list_causes("raise E('x', cause='gap')\nraise E(cause=other)") == {"gap"}


def list_long_lines(text: str) -> Iterator[str]:
    """Yield the lines of a page that are too long, but no rows of tables and no code."""
    is_code = False
    for line in text.splitlines():
        is_code ^= line.lstrip().startswith("```")
        if not is_code and not line.startswith("|") and len(line) > CHARACTERS_IN_A_LINE:
            yield line


def test_pages_that_a_newcomer_reads_have_no_long_lines() -> None:
    pages = [page for pattern in READ_FIRST for page in ROOT.glob(pattern)]
    assert len(pages) > 25
    assert [(page.name, line) for page in pages for line in list_long_lines(page.read_text())] == []


@pytest.mark.parametrize(("text", "found"), [("x" * 161, 1), ("x" * 160, 0), ("|" + "x" * 160, 0)])
def test_a_long_line_is_found_in_text_only(text: str, found: int) -> None:
    assert len(list(list_long_lines(f"{text}\n\n```\n{'x' * 161}\n```\n"))) == found


@pytest.mark.parametrize(
    "page", ["how-to/run-it.md", "how-to/install.md", "tutorial/first-report.md", "zh/first-report.md"]
)
def test_reader_without_servers_gets_the_command_that_starts_them(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    assert "python -m deploy.embedded up --kafka" in text
    assert ".venv/bin/" not in text, "only a clone has it"


def test_short_summary_of_changes_agrees_with_the_table_about_indexes() -> None:
    page = (ROOT / "docs" / "explanation" / "schema-changes.md").read_text()
    (plain,) = re.findall(r"^\| `ALTER TABLE t ADD INDEX i \(v\)` \|(.*)$", page, re.MULTILINE)
    assert plain.replace(" ", "") == "–|–|–|–|"
    summary = page.partition("**In short**")[2].partition("## ")[0]
    assert "adding or dropping a unique index" in summary
    assert "*Indexes that are not unique*: never made" in summary


def test_files_to_take_are_links() -> None:
    """The reader has rowlock from a wheel, without these files in a folder; a link downloads them."""
    pages = [
        page for folder in ("how-to", "tutorial", "reference") for page in (ROOT / "docs" / folder).iterdir()
    ]
    named = [
        (page.name, name)
        for page in pages
        for name in re.findall(r"(?<![\w./])deploy/[\w./]+", page.read_text())
    ]
    assert named == []


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.parent.name)
def test_the_readme_has_the_picture_as_it_is_drawn(path: Path) -> None:
    text = path.read_text()
    assert text == draw(PICTURES[path]), "run: python -m tools.docs.overview"
    readme = (ROOT / ("README.zh.md" if path.parent.name == "zh" else "README.md")).read_text()
    assert re.search(rf"^!\[[^]]+]\({path.relative_to(ROOT)}\)$", readme, re.MULTILINE)
    assert set(re.findall(r"https?://[^\"]+", text)) == {"http://www.w3.org/2000/svg"}, "nothing is loaded"


@pytest.mark.parametrize("labels", PICTURES.values(), ids=["English", "Chinese"])
def test_each_text_of_the_picture_fits_its_box(labels: Labels) -> None:
    """By the letters of a wide font, in the picture's units."""
    rect, text = r'<rect class="\w+" [^>]*? width="(\d+)"', r'<text( class="head")? [^>]*>([^<]*)<'
    width, checked = 0, 0
    for box, head, line in re.findall(f"{rect}|{text}", draw(labels)):
        width = int(box) if box else width
        letter = 9.5 if head else 6.5
        needs = sum(14 if unicodedata.east_asian_width(each) in "WF" else letter for each in line)
        assert needs <= width - 4, line
        checked += bool(line)
    assert checked > 20


def test_first_page_of_the_site_shows_three_ways_to_begin() -> None:
    """Its own file, for a page of the tree would be in a folder of the site."""
    text = (ROOT / "docs" / "templates" / "index.html").read_text()
    assert re.findall(r"<h2>(.*)</h2>", text) == ["Try it", "Connect two databases", "Read on"]
    linked = re.findall(r"pathto\('([^']+)'\)", text)
    assert text.count("href=") == len(linked) > 5
    assert [page for page in linked if not (ROOT / f"{page}.md").exists()] == []
    assert set(re.findall(r"rowlock (\w+)(?: mysql|$|<)", text, re.MULTILINE)) <= main.commands.keys()
    assert 'html_additional_pages = {"index": "index.html"}' in (ROOT / "docs" / "conf.py").read_text()
    assert "build/site/index.html\n" not in (ROOT / "Makefile").read_text(), "nothing writes over it"


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_readme_begins_with_the_wheel_and_the_demo_and_names_only_commands_that_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    shells = [block for language, block in blocks if not language and block[0] != " "]  # the diagram
    commands = [line.split() for block in shells for line in block.splitlines() if line]
    named_first = [" ".join(words[:2]) for words in commands if {"install", "demo"} & set(words)]
    assert named_first == ["pip install", "rowlock demo", "make demo"], "a reader may have no clone"
    named = [words[1] for words in commands if words[0] == "rowlock"]
    assert named[:4] == ["demo", "init", "check", "run"]
    assert set(named) <= main.commands.keys()
    assert ["make", "test"] not in [words[:2] for words in commands], "a DBA wants no tests"


@pytest.mark.parametrize(
    "word", ["unit", "lane", "displaced row", "held", "barrier", "closed", "fold", "quarantine", "lag"]
)
def test_words_of_status_and_messages_are_defined(word: str) -> None:
    text = (ROOT / "docs" / "explanation" / "words.md").read_text()
    assert len(re.findall(rf"^\| {word} \|", text, re.MULTILINE)) == 1


def test_no_heading_offers_a_kind_that_is_refused() -> None:
    refused = {kind for (_, key), kinds in NOT_YET.items() if key == "type" for kind in kinds}
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.stem not in refused]
    headings = [
        (page.name, line) for page in pages for line in page.read_text().splitlines() if line[:1] == "#"
    ]
    assert refused
    assert [each for each in headings if refused & set(re.findall(r"\w+", each[1].lower()))] == []


def test_the_package_names_the_pythons_with_which_something_ran() -> None:
    table = (ROOT / "docs" / "how-to" / "install.md").read_text().partition("## What ran")[2]
    ran = set(re.findall(r"^\| (3\.\d+)", table, re.MULTILINE))
    package = ConfigParser()
    package.read(ROOT / "setup.cfg")
    named = set(re.findall(r"Python :: (3\.\d+)", package["metadata"]["classifiers"]))
    assert "3.11" in ran
    assert named == ran


def test_the_package_has_addresses_or_the_page_states_that_it_has_none() -> None:
    package = ConfigParser()
    package.read(ROOT / "setup.cfg")
    has_address = bool({"url", "project_urls"} & package["metadata"].keys())
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    assert ("names no address of the project" in page) is not has_address


def test_the_texts_between_markers_are_replaced_and_nothing_else() -> None:
    page = "before\n<!-- a -->\nold\nlines\n<!-- /a -->\nbetween\n<!-- b -->\n<!-- /b -->\nafter\n"
    filled = page.replace("old\nlines", r"new \1").replace("<!-- b -->\n", "<!-- b -->\ntext\n")
    assert fill_markers(page, {"a": r"new \1", "b": "text"}) == filled
    with pytest.raises(ValueError, match="the page has no <!-- c -->"):
        fill_markers(page, {"c": ""})
