"""The documentation names what the product has: every cause of a stop, and the pages of each section."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from producer.stops import CAUSES

ROOT = Path(__file__).resolve().parents[2]
TROUBLESHOOTING = ROOT / "docs" / "how-to" / "troubleshoot.md"


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
