"""Messages name a page of the documentation by the command that finds it, `rowlock docs PAGE`: a user of the
wheel has no folder docs/.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from rowlock.commands.pages import list_pages

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("rowlock", "consumer", "producer", "coordinator", "schemas", "deploy")
#: A path of the repository that a wheel does not have.
PATH = re.compile(
    r"\bdocs/|\b[\w/.-]+\.md\b|\bMakefile\b|\bmake (?:demo|test|lint|bench)\b|`make`|\bpip install -e\b"
)
INSTALLED = re.compile(r"\bpip install '?([\w.=>-]+)")
NAMED = re.compile(r"(?:'([^']+)' in )?`rowlock docs (?:--open )?([^`]+)`")
"""The command of a page, and the section of it that a text names before."""


def list_messages(text: str) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings. An f-string is one text with `…` for each value."""
    tree = ast.parse(text)
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
            yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.value


def list_product_messages() -> Iterator[tuple[str, str]]:
    """Yield (file, text) for each message of the product, and each line of the files that a wheel has too."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*")):
            name = file.relative_to(ROOT).as_posix()
            if file.suffix == ".py":
                yield from ((name, text) for text in list_messages(file.read_text()))
            elif file.suffix == ".yaml":
                yield from ((name, line) for line in file.read_text().splitlines())


def test_no_message_names_a_file_of_the_repository() -> None:
    assert [each for each in list_product_messages() if PATH.search(each[1])] == []


def has_page(section: str, page: str) -> bool:
    """Return whether the documentation has a page, and the page the heading `section`."""
    file = list_pages().get(page)
    return file is not None and (not section or f"# {section}\n" in file.read_text())


def test_each_page_that_a_text_names_exists() -> None:
    pages = [(page, file.read_text()) for page, file in list_pages().items() if page != "CHANGELOG"]
    texts = [*list_product_messages(), *pages]
    named = [
        (name, *found)
        for name, text in texts
        for found in NAMED.findall(text)
        if found[1] not in {"PAGE", "[PAGE]", "--open"}
    ]
    assert len(named) > 40
    assert {section for _, section, _ in named} > {"What is supported", "When rows were displaced"}
    assert [each for each in named if not has_page(*each[1:])] == []


@pytest.mark.parametrize(
    ("section", "page", "exists"),
    [
        ("", "start-over", True),
        ("What is supported", "README", True),
        ("", "Start over", False),
        ("What is supported", "start-over", False),
    ],
)
def test_a_page_or_section_that_is_missing_is_found(section: str, page: str, exists: bool) -> None:
    assert has_page(section, page) is exists


def test_no_message_names_the_documentation_without_the_command() -> None:
    vague = re.compile(r"\bin (?:rowlock's|the) documentation")
    assert [each for each in list_product_messages() if vague.search(each[1])] == []


def test_each_package_that_a_message_installs_is_one_that_rowlock_needs() -> None:
    package = ConfigParser()
    package.read(ROOT / "setup.cfg")
    needed = {*package["options"]["install_requires"].split(), "rowlock"}
    named = [name for _, text in list_product_messages() for name in INSTALLED.findall(text)]
    assert named
    assert set(named) - needed == set()


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("E('start over (docs/how-to/start-over.md)')", True),
        ("E(f'{x}: see docs/how-to/start-over.md')", True),
        ("E('see README.md, Support matrix')", True),
        ("E('run make demo')", True),
        ("E('run `make` or pip install -e .')", True),
        ("'''See docs/how-to/start-over.md.'''", False),
        ("x: int\n'''See docs/how-to/start-over.md.'''", False),
        ("x = 1  # docs/how-to/start-over.md", False),
        ("E('start over (see `rowlock docs start-over`)')", False),
    ],
)
def test_a_path_that_is_planted_is_found(code: str, is_found: bool) -> None:
    assert any(PATH.search(text) for text in list_messages(code)) is is_found
