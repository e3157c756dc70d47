"""The reader of version 0.2.0, in a process of its own, refuses the operations that it would misread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from schemas.wire import codec

ROOT = Path(codec.__file__).parents[2]
GOLDEN = ROOT / "schemas" / "golden" / "v1"
RELEASE = "ba694bab"
READ = """
import sys
sys.path.insert(0, sys.argv[1])
from consumer.attempt.copies.begin import decode_copy_begin
from consumer.attempt.readers.reader import EnvelopeReader
from consumer.errors import UnitStoppedError
from consumer.ordering.model import LaneProgress
for name in sys.argv[2:]:
    raw = open(name, "rb").read().removesuffix(b"\\n")
    reader = EnvelopeReader("t")
    reader.begin_reading([LaneProgress(0, 0, 0, "", 4, (0, 0, 0, 0), 1, "")], None)
    try:
        print("read", list(reader.read_slice([(5, raw)])))
    except UnitStoppedError as error:
        print("refused", "envelope version 3.0" in str(error), decode_copy_begin(raw))
"""


def test_version_0_2_0_refuses_removed_rows_and_keys(tmp_path: Path) -> None:
    archive = subprocess.run(
        ["git", "archive", RELEASE, "schemas", "consumer", "producer"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        pytest.skip(f"the clone lacks the commit {RELEASE}")
    subprocess.run(["tar", "-x", "-C", str(tmp_path)], input=archive.stdout, check=True)
    names = [str(GOLDEN / f"{name}.json") for name in ("p", "k", "k-begin")]
    done = subprocess.run(
        [sys.executable, "-P", "-c", READ, str(tmp_path), *names],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["refused True None"] * len(names)
