"""Epochs within an assignment; what workers see of their units while a query runs; whether an attempt still
runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.errors import FencedError, TargetConfigError
from consumer.ordering.fencing_tokens import BITS, compute_next_epoch
from consumer.ordering.model import ApplyUnit
from consumer.spark.active_units import ActiveUnitsReader, AttemptLocks, write_active_units
from consumer.spark.query import build_local_master
from tests.kits.apply import until

UNIT = ApplyUnit("p", "t")
NOW = 1_795_000_000_000


def test_without_a_coordinator_the_clock_and_the_row_decide() -> None:
    assert compute_next_epoch(UNIT, 0, assigned=None, above=0, now_ms=NOW) == NOW
    assert compute_next_epoch(UNIT, NOW + 5, assigned=None, above=0, now_ms=NOW) == NOW + 6


@given(st.integers(0, 2**60), st.integers(1, 2**41), st.integers(0, 2**60))
def test_an_assignment_keeps_to_its_own_numbers(highest: int, assigned: int, above: int) -> None:
    try:
        epoch = compute_next_epoch(UNIT, highest, assigned=assigned, above=above, now_ms=NOW)
    except FencedError:
        assert max(highest, above) + 1 >= (assigned + 1) << BITS
        return
    assert epoch >> BITS == assigned
    assert epoch > max(highest, above)


def test_earlier_assignments_are_fenced_and_say_so() -> None:
    first = compute_next_epoch(UNIT, 0, assigned=NOW, above=0, now_ms=0)
    second = compute_next_epoch(UNIT, first, assigned=NOW, above=first, now_ms=0)
    later = compute_next_epoch(UNIT, second, assigned=NOW + 1, above=0, now_ms=0)
    assert first < second < later
    with pytest.raises(FencedError, match=f"the target has {NOW + 1}"):
        compute_next_epoch(UNIT, later, assigned=NOW, above=second, now_ms=0)
    restored = compute_next_epoch(UNIT, first, assigned=NOW, above=second, now_ms=0)
    assert restored > second, "the row went back with a backup: what this holder had is not given again"


def test_a_board_is_seen_by_the_next_look(tmp_path: Path) -> None:
    path = tmp_path / "board"
    reader = ActiveUnitsReader(str(path))
    assert reader.get_epoch("a") is None
    for number in range(200):  # faster than the file system's clock ticks
        write_active_units(path, {"a": number, "b": 1})
        assert reader.get_epoch("a") == number
    write_active_units(path, {"b": 1})
    assert (reader.get_epoch("a"), reader.get_epoch("b")) == (None, 1)
    path.unlink()
    assert reader.get_epoch("b") is None


def test_the_lock_of_an_attempt_tells_who_holds_it_and_goes_with_its_process(tmp_path: Path) -> None:
    path = str(tmp_path / "attempts")
    attempts = AttemptLocks(path)
    script = (
        "import sys\nfrom consumer.spark.active_units import AttemptLocks\nwith "
        "AttemptLocks(sys.argv[1]).lock_attempt('t'):\n    print('runs', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        with attempts.lock_attempt("t"):  # attempts may overlap: the target tells them apart
            assert attempts.find_holder("t") == process.pid
        assert attempts.find_holder("other") is None
        os.kill(process.pid, signal.SIGSTOP)
        assert attempts.find_holder("t") == process.pid
        process.kill()
        until(lambda: attempts.find_holder("t") is None, seconds=20, what="no holder")
    with attempts.lock_attempt("t"):
        pass
    asks = (
        "import sys\nfrom consumer.spark.active_units import AttemptLocks\n"
        "print(AttemptLocks(sys.argv[1]).find_holder('t'))"
    )
    found = subprocess.run([sys.executable, "-c", asks, path], capture_output=True, check=True)
    assert found.stdout == b"None\n", "another process sees that the attempt has ended"
    attempts.close()


def test_an_executor_on_another_machine_is_told_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(TargetConfigError, match="must run on the agent's own machine"):
        AttemptLocks(str(tmp_path / "not-here" / "attempts"))


def test_a_session_of_many_queries_has_slots_for_all() -> None:
    assert build_local_master("local[2,4]", 4) == "local[8,4]"
    assert build_local_master("local[2,4]", 40) == "local[16,4]"
    assert build_local_master("local[32,3]", 2) == "local[32,3]"
    assert build_local_master("spark://h:7077", 2) == "spark://h:7077"
