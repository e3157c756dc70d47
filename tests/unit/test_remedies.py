"""What messages and pages tell a person to do must be something that a person can do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.findings import START_OVER

ROOT = Path(__file__).parents[2]
_PROGRAM = ("producer", "consumer", "coordinator", "rowlock", "schemas", "deploy")
#: Its `--help` is the one place that may speak of an option of the capture process, which no page names.
_CAPTURE = ROOT / "producer" / "main.py"


def _texts() -> Iterator[Path]:
    for folder in _PROGRAM:
        yield from (ROOT / folder).rglob("*.py")
    yield from (page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "adr")
    yield ROOT / "README.md"


@pytest.mark.parametrize("unavailable", ["--new-snapshot", "ake a new snapshot", "eset the unit"])
def test_no_text_names_a_remedy_that_does_not_exist(unavailable: str) -> None:
    naming = [path for path in _texts() if path != _CAPTURE and unavailable in path.read_text()]
    assert naming == []


def test_every_page_that_a_text_names_is_there() -> None:
    assert "docs/how-to/start-over.md" in START_OVER
    missing = {
        (str(path.relative_to(ROOT)), page)
        for path in _texts()
        for page in re.findall(r"docs/[\w/.-]+\.md", path.read_text())
        if not (ROOT / page).exists()
    }
    links = {
        (str(path.relative_to(ROOT)), link)
        for path in _texts()
        if path.suffix == ".md"
        for link in re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", path.read_text())
        if not (path.parent / link).exists()
    }
    assert missing | links == set()
