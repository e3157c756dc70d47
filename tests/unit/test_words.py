"""The words and sentences that the project has given up stay away: they told a stranger less than the field's own."""

from __future__ import annotations

import ast
import re
from collections import Counter
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
    r"\ba hand \(unit\)|\bthat a hand applies itself": "what the agent itself applies on takeover, before a query gets the unit",
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
    r"\b(owner_feed|owner_ticks|own_folder\.py|TopicRun|SHORT_BATCH)\b": "the names of house.md §3",
}
#: Package → docstrings whose first line has no subject: it opens with the word of a question. The numbers may only fall.
SUBJECTLESS = {"consumer": 88, "coordinator": 96, "deploy": 7, "producer": 105, "rowlock": 48, "schemas": 35}
OPENINGS = re.compile(r"(What|Whoever|Who|Where|Whether|How|Why|Which|When|Nobody|That)\b")
HISTORY = {"docs/adr"}


def test_retired_words_stay_away() -> None:
    found = []
    for path in _files():
        text = path.read_text()
        for pattern, instead in RETIRED.items():
            if match := re.search(pattern, text, re.IGNORECASE):
                found.append(f"{path.relative_to(ROOT)}: {match[0]!r} → {instead}")
    assert found == []


@pytest.mark.parametrize("package", SUBJECTLESS)
def test_first_lines_say_of_what_they_speak(package: str) -> None:
    found = Counter(
        doc.split()[0]
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if OPENINGS.match(doc := ast.get_docstring(node) or "")
    )
    assert sum(found.values()) <= SUBJECTLESS[package], f"name the thing first: {dict(found)}"


def _files() -> list[Path]:
    whole = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
    for package in PACKAGES:
        whole += [p for suffix in ("*.py", "*.md") for p in (ROOT / package).rglob(suffix)]
    return [path for path in whole if not any(str(path.relative_to(ROOT)).startswith(old) for old in HISTORY)]
