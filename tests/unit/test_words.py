"""The words and sentences that the project has given up stay away: they told a stranger less than the field's own."""

from __future__ import annotations

import re
from pathlib import Path

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
}
HISTORY = {"docs/adr"}


def test_retired_words_stay_away() -> None:
    found = []
    for path in _files():
        text = path.read_text()
        for pattern, instead in RETIRED.items():
            if match := re.search(pattern, text, re.IGNORECASE):
                found.append(f"{path.relative_to(ROOT)}: {match[0]!r} → {instead}")
    assert found == []


def _files() -> list[Path]:
    whole = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
    for package in PACKAGES:
        whole += [p for suffix in ("*.py", "*.md") for p in (ROOT / package).rglob(suffix)]
    return [path for path in whole if not any(str(path.relative_to(ROOT)).startswith(old) for old in HISTORY)]
