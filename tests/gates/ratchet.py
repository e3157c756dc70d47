"""Baselines of gates whose target is not met yet: a value may not become worse than its baseline.

A *list* has a file with one line for each breach. The file has to be exact: a new breach fails, and so does
a line whose breach has been mended. *Counts* (counts.txt, "gate, what: number") may not rise. Lower counts
pass until the next update, so that branches which lower the same count can be merged.

`python -m tests.gates --update` lowers the baselines; with `--accept` it also raises them. A gate whose
target is met has no baseline.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

BASELINES = Path(__file__).parent / "baselines"
COMMAND = "python -m tests.gates --update"
Values = dict[str, int]
"""What is counted, or one breach → how much of it there is."""


class Measure(NamedTuple):
    """What a gate found. `figure` and `target` are for people; `values` has only what exceeds the target."""

    gate: str
    figure: str
    target: str
    values: Values
    is_list: bool


def compare_values(measure: Measure, baseline: Values) -> list[str]:
    """Return what is wrong with the values of a measure, one line for each."""
    mended = sorted(baseline.keys() - measure.values.keys()) if measure.is_list else []
    return [
        *list_worse(measure, baseline),
        *(f"{measure.gate}: {key} is mended, run {COMMAND}" for key in mended),
    ]


def list_worse(measure: Measure, baseline: Values) -> list[str]:
    """Return what is worse than the baseline, one line for each."""
    return [
        f"{measure.gate}: {key}" + ("" if measure.is_list else f" is {value}, was {baseline.get(key, 0)}")
        for key, value in sorted(measure.values.items())
        if value > baseline.get(key, 0)
    ]


def lower_values(measure: Measure, baseline: Values, *, accept: bool) -> Values:
    """Return the next baseline: the lower values, and with `accept` the higher ones too."""
    if accept:
        return measure.values
    return {key: min(value, baseline[key]) for key, value in measure.values.items() if key in baseline}


def load_baseline(measure: Measure, folder: Path = BASELINES) -> Values:
    path = _find_path(measure, folder)
    lines = path.read_text().splitlines() if path.exists() else []
    if measure.is_list:
        return dict.fromkeys(lines, 1)
    pairs = (line.rpartition(": ") for line in lines)
    prefix = f"{measure.gate}, "
    return {key.removeprefix(prefix): int(value) for key, _, value in pairs if key.startswith(prefix)}


def write_baselines(values: Iterable[tuple[Measure, Values]], folder: Path = BASELINES) -> None:
    """Write the baselines of all measures; counts of all gates share a file. An empty one is deleted."""
    counts: list[str] = []
    for measure, found in values:
        if measure.is_list:
            _write_lines(_find_path(measure, folder), [f"{key}\n" for key in found])
        else:
            counts += [f"{measure.gate}, {key}: {value}\n" for key, value in found.items()]
    _write_lines(folder / "counts.txt", counts)


def _write_lines(path: Path, lines: list[str]) -> None:
    if lines:
        path.write_text("".join(sorted(lines)))
    else:
        path.unlink(missing_ok=True)


def _find_path(measure: Measure, folder: Path) -> Path:
    return folder / (f"{measure.gate}.txt" if measure.is_list else "counts.txt")
