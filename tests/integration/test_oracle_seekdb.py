"""Oracle's stand (b): the rules of producer/sources/oracle/mlog.py on logs that a third party's engine
keeps.

An independent witness for the pairing of images, their order, keys that move, rows that are seen late, and a
purge by another consumer. Where seekdb differs from Oracle: the image before an update is 'O' there, not
'U', and no client may delete from a log.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from deploy.errors import EmbeddedError
from deploy.fetch.cache import MB, ensure_cached
from producer.sources.oracle.mlog import LogRow, parse_log_rows
from schemas.table.model import Row
from tests.stands import seekdb_process as seekdb_stand

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
WHEEL = "pylibseekdb==1.2.0"
"""Later ones have no materialized view logs."""


def _unpacked(place: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        str(place),
        WHEEL,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise EmbeddedError(
            "stand (b) of Oracle", f"{WHEEL} cannot be had here: {done.stderr[-300:]}", "see what pip says"
        )
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    wheel.unlink()


@pytest.fixture(scope="module")
def wheel() -> Path:
    try:
        return ensure_cached("pylibseekdb-1.2.0", _unpacked, 1000 * MB)
    except (EmbeddedError, OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"stand (b) does not run: {error}")


def notified(wheel: Path, folder: Path, seed: int) -> list[dict[str, Any]]:
    command = [sys.executable, seekdb_stand.__file__, str(wheel), str(folder / "db"), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"rows"')]


def logged(row: list[Any]) -> LogRow:
    sequence, dml, old_new, scn, *image = row
    if (dml, old_new) == ("U", "O"):
        old_new = "U"
    return LogRow(str(sequence), sequence, dml, old_new, str(scn), 0, tuple(image))


@pytest.mark.parametrize("seed", range(3))
def test_an_engine_of_somebody_elses_keeps_logs_as_they_are_read(
    wheel: Path, tmp_path: Path, seed: int
) -> None:
    """After each poll what its changes say is what the table holds."""
    *looks, last, purged = notified(wheel, tmp_path, seed)
    held: dict[Any, Row] = {}
    seen: set[int] = set()
    late, moved = 0, 0
    for look in (*looks, last):
        rows = [row for row in map(logged, look["log"]) if row.sequence not in seen]
        late += sum(row.sequence < max(seen, default=0) for row in rows)
        seen |= {row.sequence for row in rows}
        for change in parse_log_rows(rows, lambda row: row[:1], whole=True).changes:
            if change.before is not None:
                assert held.pop(change.before[0]) == change.before
            if change.after is not None:
                assert change.after[0] not in held
                held[change.after[0]] = change.after
            moved += change.op == "d"
        assert held == {row[0]: tuple(row) for row in look["rows"]}
    assert late, "numbers have followed commits, which shows nothing"
    assert moved
    assert last["log"]
    assert purged["log"] == [], "another consumer's purge takes rows that nobody has read"
