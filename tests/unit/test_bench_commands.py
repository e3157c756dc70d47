"""The benchmark of commands measures whole processes, and reports no command that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.commands import Ended, describe_runs, time_command


def test_a_figure_is_the_median_of_its_runs() -> None:
    runs = [Ended(seconds, 0.5, 0, 10) for seconds in (3.0, 1.0, 2.0)]
    assert describe_runs(runs) == ("2.00 s", "3 times, 1.00 to 3.00 s; 0.50 s of processor time")


def test_a_command_that_failed_has_no_figure() -> None:
    with pytest.raises(RuntimeError, match="exit code 2"):
        describe_runs([Ended(1.0, 0.5, 0, 10), Ended(0.1, 0.1, 2, 1)])


@pytest.mark.parametrize(("words", "code"), [(("--version",), 0), (("nonsense",), 2)])
def test_a_command_is_a_process_of_its_own(words: tuple[str, ...], code: int, tmp_path: Path) -> None:
    ended = time_command(*words, log=tmp_path / "log")
    assert ended.code == code
    assert ended.seconds > 0
    assert ended.cpu_s > 0
    assert ended.lines == len((tmp_path / "log").read_text().splitlines()) > 0
