"""The words and sentences that the project has given up stay away: they explained less to a stranger than the
field's own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("consumer", "coordinator", "producer", "rowlock", "schemas", "deploy", "docs")
#: What is not written any more → what is.
RETIRED = {
    r"\bshort way\b": "one transaction (for all lanes)",
    r"\bthe way, modelled\b|\bthe way modelled\b": "simulation",
    r"\bunits there shall be\b": "the desired set of units",
    r"\bnobody shall run\b": "dropped or paused",
    r"\*\*Believe\*\*": "**Verify**",
    r"\blane_threads\b": "attempt/lane_group",
    r"\ba hand \(unit\)|\bthat a hand applies itself": "what the agent itself applies on takeover, "
    "before a query gets the unit",
    r"\bis done for a unit by asking\b": "blocking operations on one unit",
    r"\bwho is on which board\b": "which query applies which unit",
    r"\bask a hand to see to it\b": "fence the unit",
    r"\btaking units over\b": "unit takeover",
    r"\bdefinition in force comes to\b": "what is derived from the active definition",
    r"\bagent is lost shall not wait\b": "failover does not pay JVM start-up",
    r"\bis said to the agent\b": "reports … to the agent",
    r"\bwritten away before it is displaced\b": "saved to rowlock_displaced before it is removed",
    r"\bhas Debezium's connector\b": "if you already run Debezium",
    r"\bsay them again\b": "pause them again",
    r"\bcoordinator that leads give that up\b": "make the current leader step down",
    r"\bcould store nothing\b": "had not persisted",
    r"\b(leader_feed|owner_ticks|own_folder\.py|TopicRun|SHORT_BATCH)\b": "the names of house.md §3",
}
SUBJECTLESS = re.compile(r"(What|Whoever|Who|Where|Why|Which|When|How|Nobody|That|Whether)\b")
"""A first line that opens with one of these has no subject. (A description of a field may open with
"Whether": it is a yes or no.)"""
HISTORY = {"docs/adr"}


def test_retired_words_stay_away() -> None:
    found = []
    for path in _files():
        text = path.read_text()
        for pattern, instead in RETIRED.items():
            if match := re.search(pattern, text, re.IGNORECASE):
                found.append(f"{path.relative_to(ROOT)}: {match[0]!r} → {instead}")
    assert found == []


@pytest.mark.parametrize("package", [each for each in PACKAGES if each != "docs"])
def test_first_lines_say_of_what_they_speak(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text.partition(chr(10))[0]}"
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for text in _said(node)
        if SUBJECTLESS.match(text)
    ]
    assert found == [], "name the thing first, or begin with a verb"


def _said(node: ast.AST) -> Iterator[str]:
    """Yield the docstring of `node`, or its help text as an option or a field."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield ast.get_docstring(node) or ""
    elif (
        isinstance(node, ast.keyword)
        and node.arg in {"help", "description"}
        and isinstance(node.value, ast.Constant)
    ):
        yield str(node.value.value).removeprefix("Whether")


def _files() -> list[Path]:
    whole = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
    for package in PACKAGES:
        whole += [p for suffix in ("*.py", "*.md") for p in (ROOT / package).rglob(suffix)]
    return [path for path in whole if not any(str(path.relative_to(ROOT)).startswith(old) for old in HISTORY)]
