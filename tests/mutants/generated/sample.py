"""The stored sample: which places were drawn, and what became of each mutant."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from tests.mutants.generated import FOLDER, SEED
from tests.mutants.generated.places import Key

Verdict = Literal["killed", "survived", "unreached", "error"]
SAMPLE = FOLDER / "sample.tsv"
ACCEPTED = FOLDER / "accepted.tsv"
_HEAD = ("file", "function", "operator", "ordinal", "verdict", "test", "how")
VERDICTS: Mapping[str, Verdict] = {
    "killed": "killed",
    "survived": "survived",
    "unreached": "unreached",
    "error": "error",
}


class Judged(NamedTuple):
    """A verdict."""

    verdict: Verdict
    test: str = ""
    """The test that killed the mutant."""
    how: str = ""
    """failed, late (it did not end in time) or died (it ended its process); of an error, the reason."""


class Reason(NamedTuple):
    """Why a mutant may survive: the first four parts are its key."""

    file: str
    function: str
    operator: str
    ordinal: int
    reason: str


Sample = dict[Key, Judged | None]
"""None: not judged yet."""


def draw(keys: Iterable[Key], size: int, seed: int) -> list[Key]:
    """Return `size` keys, from each stratum in proportion to its number; a seed gives the same ones again."""
    strata: dict[str, list[Key]] = defaultdict(list)
    for key in keys:
        strata[key.stratum].append(key)
    total = sum(map(len, strata.values()))
    size = min(size, total)
    exact = {name: size * len(members) / total for name, members in strata.items()}
    counts = {name: int(share) for name, share in exact.items()}
    by_rest = sorted(exact, key=lambda name: (counts[name] - exact[name], name))
    for name in by_rest[: size - sum(counts.values())]:
        counts[name] += 1
    return sorted(
        key
        for name, members in strata.items()
        for key in random.Random(f"{seed} {name}").sample(sorted(members), counts[name])
    )


def redraw(sample: Sample, keys: Iterable[Key], seed: int = SEED) -> Sample:
    """Return the sample with new keys for those without a place: of the same file, else stratum, else any."""
    known = set(keys)
    free = sorted(known - set(sample))
    kept = {key: judged for key, judged in sample.items() if key in known}
    chooser = random.Random(seed)
    for gone in sorted(set(sample) - known):
        near = [key for key in free if key.file == gone.file] or [
            key for key in free if key.stratum == gone.stratum
        ]
        if not free:
            break
        new = chooser.choice(near or free)
        free.remove(new)
        kept[new] = None
    return kept


def read_sample(path: Path) -> Sample:
    """Return the stored sample; empty if there is none."""
    sample: Sample = {}
    for line in _read_lines(path):
        file, function, operator, ordinal, verdict, test, how = line.split("\t")
        judged = Judged(VERDICTS[verdict], test, how) if verdict else None
        sample[Key(file, function, operator, int(ordinal))] = judged
    return sample


def write_sample(path: Path, sample: Sample) -> None:
    """Write the sample in the order of its keys."""
    rows = [
        (*key, *(judged or ("", "", ""))) for key, judged in sorted(sample.items(), key=lambda pair: pair[0])
    ]
    _write(path, _HEAD, rows)


def read_accepted(path: Path) -> list[Reason]:
    """Return the reasons for accepted survivors."""
    rows = (line.split("\t") for line in _read_lines(path))
    return [Reason(file, function, operator, int(at), why) for file, function, operator, at, why in rows]


def write_accepted(path: Path, reasons: Iterable[Reason]) -> None:
    """Write the reasons in order."""
    _write(path, Reason._fields, sorted(reasons))


def _read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:] if path.exists() else []


def _write(path: Path, head: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a table through a second file, so that an interruption leaves the first one whole."""
    lines = ["\t".join(map(str, row)) for row in (head, *rows)]
    beside = path.with_suffix(".new")
    beside.write_text("\n".join(lines) + "\n")
    beside.replace(path)
