"""The Chinese pages are as complete as the English ones: sections, tables, code and links."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Chinese page → the English page that it translates.
PAGES = {
    "README.zh.md": "README.md",
    "docs/zh/tdsql.md": "docs/how-to/tdsql.md",
    "docs/zh/first-report.md": "docs/tutorial/first-report.md",
    "docs/zh/break-and-repair.md": "docs/tutorial/break-and-repair.md",
}
_ENGLISH = {**PAGES, "docs/zh/README.md": "docs/tutorial/README.md"}
_PICTURES = {"docs/zh/overview.svg": "docs/overview.svg"}
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class PageContents(NamedTuple):
    """What a page and its translation have in common."""

    headings: list[str]
    """Their levels, as `#`."""
    items: int
    """Items of lists."""
    rows: list[int]
    """The columns of each row of its tables."""
    code: list[str]
    """Commands and configurations, without comments."""


def read_contents(text: str) -> PageContents:
    blocks = [block for block in _BLOCK.findall(text) if not block.startswith(" ")]  # a diagram is translated
    prose = _BLOCK.sub("", text)
    return PageContents(
        re.findall(r"^#+(?= )", prose, re.MULTILINE),
        len(re.findall(r"^- ", prose, re.MULTILINE)),
        [line.count("|") for line in prose.splitlines() if line.startswith("|")],
        [re.sub(r" +# .*", "", block) for block in blocks],
    )


def list_links(page: str, text: str) -> set[str]:
    """Return the pages that a page links to, of translated ones the English one."""
    found = set()
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", _BLOCK.sub("", text)):
        path = (ROOT / PurePosixPath(page).parent / target).resolve().relative_to(ROOT).as_posix()
        found.add((_ENGLISH | _PICTURES).get(path, path))
    return found


@pytest.mark.parametrize(("chinese", "english"), PAGES.items())
def test_a_translation_has_the_sections_tables_code_and_links_of_its_page(chinese: str, english: str) -> None:
    translated, original = (ROOT / chinese).read_text(), (ROOT / english).read_text()
    assert read_contents(translated) == read_contents(original)
    assert list_links(english, original) - list_links(chinese, translated) == set()


def test_each_chinese_page_is_compared_with_an_english_one() -> None:
    pages = [*ROOT.glob("README.*.md"), *(ROOT / "docs" / "zh").glob("*.md")]
    assert {page.relative_to(ROOT).as_posix() for page in pages} == _ENGLISH.keys()


@pytest.mark.parametrize(
    "changed",
    ["# A\n\n## B\n", "# A\n\n- x\n", "# A\n\n| x |\n", "# A\n\n```sh\nrowlock check  # y\n```\n"],
)
def test_a_page_that_has_more_is_found(changed: str) -> None:
    assert read_contents(changed) != read_contents("# A\n\n```sh\nrowlock run  # x\n```\n")


def test_comments_and_diagrams_may_be_translated() -> None:
    one = "```sh\nrowlock run  # now\n```\n\n```\n source\n```\n"
    assert read_contents(one) == read_contents(one.replace("now", "现在").replace("source", "源"))
