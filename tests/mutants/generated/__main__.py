"""The commands on the sample of generated mutants; without an option, its verdicts by package."""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.mutants.generated import PACKAGES, ROOT, SEED, SIZE
from tests.mutants.generated.choice import Budget
from tests.mutants.generated.places import Key, Place, list_places
from tests.mutants.generated.renaming import read_renames, rename
from tests.mutants.generated.runner import Runner
from tests.mutants.generated.sample import (
    ACCEPTED,
    SAMPLE,
    Sample,
    draw,
    read_accepted,
    read_sample,
    redraw,
    write_accepted,
    write_sample,
)
from tests.mutants.generated.session import warm_up
from tests.mutants.generated.tracing import cache_path

PORTION = 20
"""Verdicts are stored after so many of them."""
LONGER = Budget(tests=150, seconds=30.0)
"""For survivors: what the usual tests do not find, others may."""


def main() -> int:
    """Return 0 unless a killed mutant survives now, or a key has no place."""
    options = _parse()
    places = {place.key: place for place in list_places(ROOT, PACKAGES)}
    if options.renamed:
        return _rename(Path(options.renamed), places)
    sample = read_sample(SAMPLE)
    if options.redraw or not sample:
        sample = redraw(sample, places) if sample else dict.fromkeys(draw(places, SIZE, SEED))
        write_sample(SAMPLE, sample)
    if missing := [key for key in sample if key not in places]:
        print("\n".join(f"no such place: {key}" for key in missing))
        return 1
    if options.sample:
        return _check(sample, places, options.sample, options.seed)
    if options.store:
        _store(sample, _select(sample, places, options), by_more=options.survivors)
    print(format_table(sample))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.generated", description=__doc__)
    parser.add_argument(
        "--store", action="store_true", help="judge the mutants without a verdict, and store it"
    )
    parser.add_argument("--again", action="store_true", help="with --store: also those that have one")
    parser.add_argument("--survivors", action="store_true", help="with --store: survivors, by more tests")
    parser.add_argument("--only", default="", metavar="PATH", help="with --store: files that begin so")
    parser.add_argument(
        "--sample", type=int, metavar="N", help="check that N killed mutants are still killed"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="draws these N")
    parser.add_argument("--renamed", metavar="TSV", help="carry the stored keys through these renames")
    parser.add_argument(
        "--redraw", action="store_true", help="replace keys whose place is gone by new places nearby"
    )
    return parser.parse_args()


def _select(sample: Sample, places: dict[Key, Place], options: argparse.Namespace) -> list[Place]:
    """Return the places to judge."""
    chosen = []
    for key, judged in sample.items():
        is_wanted = options.again or judged is None
        if options.survivors:
            is_wanted = judged is not None and judged.verdict == "survived"
        if is_wanted and key.file.startswith(options.only):
            chosen.append(places[key])
    return chosen


def _store(sample: Sample, chosen: list[Place], *, by_more: bool) -> None:
    """Judge places and store their verdicts in portions."""
    began = time.monotonic()
    results = (
        Runner(LONGER).judge_by_more(chosen, cache_path(), Budget())
        if by_more
        else Runner(Budget()).judge(chosen, cache_path())
    )
    for number, (place, judged) in enumerate(results, 1):
        sample[place.key] = judged
        elapsed = time.monotonic() - began
        print(
            f"{number}/{len(chosen)} {elapsed:.0f}s {place.key} {judged.verdict} {judged.test} {judged.how}",
            flush=True,
        )
        if number % PORTION == 0:
            write_sample(SAMPLE, sample)
    write_sample(SAMPLE, sample)


def _check(sample: Sample, places: dict[Key, Place], count: int, seed: int) -> int:
    """Judge killed mutants again, by the test that killed each; if that one passes, by the others."""
    killed = {key: judged for key, judged in sample.items() if judged and judged.verdict == "killed"}
    chosen = random.Random(seed).sample(sorted(killed), min(count, len(killed)))
    tests = {places[key]: [killed[key].test] for key in chosen if killed[key].test}
    modules = sorted({test.partition("::")[0] for each in tests.values() for test in each})
    modules = [module for module in modules if (ROOT / module).exists()]
    found = {
        place for place, judged in Runner(Budget(), modules).judge_by(tests) if judged.verdict == "killed"
    }
    left = [places[key] for key in chosen if places[key] not in found]
    lost = []
    if left:
        print(f"{len(left)} are not found by the test that found them: the other tests are tried", flush=True)
        judged_anew = Runner(Budget()).judge(left, cache_path())
        lost = [
            (place, judged) for place, judged in judged_anew if judged.verdict in ("survived", "unreached")
        ]
    for place, judged in lost:
        print(
            f"killed before, {judged.verdict} now: {place.key}\n  {ROOT / place.key.file}:{place.change.line}"
        )
    print(f"{len(chosen) - len(lost)} of {len(chosen)} generated mutants found (seed {seed})")
    return 1 if lost else 0


def _rename(path: Path, places: dict[Key, Place]) -> int:
    """Rewrite the keys of sample and reasons; return 1 if one of the new keys has no place."""
    renames = read_renames(path.read_text().splitlines())
    sample = {rename(key, renames): judged for key, judged in read_sample(SAMPLE).items()}
    write_sample(SAMPLE, sample)
    write_accepted(ACCEPTED, [rename(each, renames) for each in read_accepted(ACCEPTED)])
    missing = [key for key in sample if key not in places]
    print(
        "\n".join(
            [
                *(f"no such place: {key}" for key in missing),
                f"{len(sample)} keys, {len(missing)} of them without a place",
            ]
        )
    )
    return 1 if missing else 0


def format_table(sample: Sample) -> str:
    """Return the number of verdicts by package."""
    columns = ("killed", "survived", "unreached", "error", "not judged")
    rows: dict[str, Counter[str]] = {}
    for key, judged in sample.items():
        for name in (key.file.split("/")[0], "all"):
            rows.setdefault(name, Counter())[judged.verdict if judged else "not judged"] += 1
    rows["all"] = rows.pop("all", Counter())
    return "\n".join(
        _format_row(each)
        for each in [
            ("", *columns),
            *((name, *(str(row[column]) for column in columns)) for name, row in rows.items()),
        ]
    )


def _format_row(cells: Iterable[str]) -> str:
    first, *others = cells
    return f"{first:12}" + "".join(f"{each:>12}" for each in others)


def _prepare() -> None:
    """Let each run hash texts alike, and make sure that the product is the one of this tree."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.mutants.generated", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None or not Path(spec.origin).is_relative_to(ROOT):
            raise SystemExit(f"{package} would be imported from {spec and spec.origin}, not from {ROOT}")
    warm_up()


if __name__ == "__main__":
    _prepare()
    sys.exit(main())
