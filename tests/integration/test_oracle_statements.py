"""H2 in Oracle mode executes every statement of Oracle's dialect: what the whole run of the common suite sent
to it is held against the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits import oracle_statements
from tests.kits.apply import ROOT
from tests.kits.oracle_types import TYPES
from tests.stands.oracle_on_h2 import PHRASES, RECORD, phrased

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # the whole suite, in a process of its own
SUITE = "tests/integration/test_oracle_target.py"


@pytest.mark.usefixtures("oracle")  # its files are fetched by then
def test_h2_executes_every_statement_of_the_dialect(tmp_path: Path) -> None:
    record = tmp_path / "statements"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", SUITE], cwd=ROOT,
        capture_output=True, text=True, check=False, env={**os.environ, RECORD: str(record)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    executed = oracle_statements.read(record)
    lacking = [f"{text.where}: {text.shown}" for text in oracle_statements.never_executed(executed)]
    assert lacking == [], "H2 never executed these: add a case to the common suite, or a reason to EXEMPT"
    assert types_without_a_column(executed) == []
    assert phrases_without_a_need(executed) == []


def types_without_a_column(executed: list[str]) -> list[str]:
    """Return the types, as patterns, that no table of H2's had a column of."""
    made = " ".join(text for text in executed if text.startswith("CREATE TABLE"))
    names = {re.sub(r"\d+", r"\\d+", re.escape(theirs)) for _, theirs, _ in TYPES}
    return [name for name in sorted(names) if not re.search(f'" {name}(,| NOT NULL)', made)]


def phrases_without_a_need(executed: list[str]) -> list[str]:
    """Return the phrases that stand in nothing: one that is not needed would hide what H2 takes as it is."""
    changed = [text for text in executed if phrased(text) != re.sub(r":(\d+)", r"?\1", text)]
    return [
        pattern for pattern, _, _ in PHRASES if not any(re.search(pattern, text) for text in changed)
    ]  # fmt: skip
