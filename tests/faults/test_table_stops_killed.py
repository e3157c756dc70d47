"""A stop survives whatever comes between its cause and its record: kill -9, other rows, two more starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.capturing import ACCOUNT, Capturing
from tests.kits.capture import ROOT

pytestmark = pytest.mark.timeout(1200)


def dies(capturing: Capturing, when: str, *patterns: str) -> None:
    """Start a capture that is killed at its first stop of a table."""
    command = [
        "-m",
        "tests.kits.dying_capture",
        when,
        "--config",
        str(capturing.config(*patterns)),
        "--source",
        "s",
    ]
    done = subprocess.run(
        [sys.executable, *command, "--detached"], cwd=ROOT, timeout=900, capture_output=True, check=False
    )
    assert done.returncode == -9, done.stderr.decode()[-3000:]


#: cause → what is done to the table `a` while capture is down, and the patterns of the next start.
CAUSES: dict[str, tuple[Callable[[Capturing], None], tuple[str, ...]]] = {
    "dropped": (lambda c: c.change("DROP TABLE a"), ()),
    "rows-replaced": (lambda c: c.change("ALTER TABLE a DISCARD TABLESPACE"), ()),
    "statement": (
        lambda c: c.change("SET SESSION binlog_format = 'STATEMENT'",
         "UPDATE a SET v = 'unseen' WHERE id = 1"), (),
    ),
    "definition": (
        lambda c: c.change(
            "ALTER TABLE a ADD COLUMN w INT", "INSERT INTO a VALUES (3, 'z', 1)",
            "ALTER TABLE a ADD COLUMN q INT"
        ), (),
    ),
    "unfit": (lambda c: c.change("ALTER TABLE a DROP PRIMARY KEY"), ()),
    "deselected": (lambda _: None, ("b",)),
}  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
def test_not_one_later_row_is_in_the_topic(capturing: Capturing, cause: str) -> None:
    happens, patterns = CAUSES[cause]
    capturing.run("INSERT INTO a VALUES (1, 'x')")
    happens(capturing)
    for when in ("cause", "event"):
        dies(capturing, when, *patterns)
        if cause == "dropped":  # made again, it is copied: see below
            continue
        if cause == "unfit":  # made fit again, it would be stopped for another reason
            capturing.change(f"INSERT INTO a VALUES (9, '{when}')")
        else:
            _changed(capturing, when)
    capturing.run(patterns=patterns)
    capturing.stopped("a", cause)
    _changed(capturing, "after the record")
    capturing.run()
    if cause == "dropped":
        _behind_a_copy(capturing)
        return
    assert capturing.values("a") == {"x"}
    capturing.stopped("a", cause)


def _behind_a_copy(capturing: Capturing) -> None:
    """Judge: a table that was dropped and is there again is copied; after its stop come only the
    events of its copy."""
    found = capturing.events("a")
    stop = max(at for at, event in enumerate(found) if event.stop is not None)
    behind = found[stop + 1 :]
    if behind:  # it has begun within this run
        assert behind[0].copy is not None
        assert behind[0].definition is not None
        assert capturing.values("a") <= {"x", "after the record"}
    else:
        assert capturing.values("a") == {"x"}


def _changed(capturing: Capturing, value: str) -> None:
    """Whatever `a` is now, make it an ordinary table again, with another row."""
    capturing.change(
        "DROP TABLE IF EXISTS a",
        ACCOUNT.format(db=capturing.db, name="a"),
        f"INSERT INTO a VALUES (9, '{value}')",
    )
