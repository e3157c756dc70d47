"""Whether a revision is as fast as one before it: `python -m bench` of both, by turns, on this machine.

Each run has servers of its own; the revision before runs from a tree of its own (`git archive`), its
benchmark's code with it, and with the packages of this one. A figure of one run is the machine's as much as
the program's, so medians of pairs are compared.

python -m bench.pairs REVISION [--pairs 5] [--only capture,apply] [--events 200000]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from bench.start import ROOT, revision

_FIGURE = re.compile(
    r"(?P<what>[^:]+(?: : [^:]+)?): (?:p50 )?(?P<number>[\d,.]+)(?P<unit> [^\s(]+)?(?P<note>.*)"
)
_PROCESSOR = re.compile(r"([\d.]+) µs of processor time an event")
Figured = dict[str, float]


def read_figures(reported: str) -> Figured:
    """Return what a run of the benchmark printed: figure → number, the processor time an event as a figure of
    its own."""
    found: Figured = {}
    for line in reported.splitlines():
        if (
            (seen := _FIGURE.fullmatch(line)) is None
            or "baseline" in seen["what"]
            or "memory" in seen["what"]
        ):
            continue
        found[f"{seen['what']} ({(seen['unit'] or '').strip()})"] = float(seen["number"].replace(",", ""))
        if (cost := _PROCESSOR.search(seen["note"])) is not None:
            found[f"{seen['what']} (µs of processor time an event)"] = float(cost[1])
    return found


def run_once(where: Path, only: str, events: int) -> Figured:
    """Run the benchmark of the tree in `where`. Raises RuntimeError with the end of what it printed where it
    fails."""
    module = "bench" if (where / "bench").is_dir() else "tests.bench"  # its name until 0.1.0
    done = subprocess.run(
        [sys.executable, "-m", module, "--only", only, "--no-write", "--events", str(events)],
        cwd=where, env={**os.environ, "PYTHONPATH": str(where)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{where}: {done.stdout[-500:]}\n{done.stderr[-2000:]}")
    return read_figures(done.stdout)


def table(before: list[Figured], now: list[Figured]) -> list[str]:
    """Return a Markdown table: each pair, the medians and their ratio, of the figures that both have."""
    lines = ["| | before | now | medians | now : before |", "|---|---|---|---|---|"]
    values: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for side, runs in enumerate((before, now)):
        for figures in runs:
            for what, number in figures.items():
                values[what][side].append(number)
    for what, (old, new) in values.items():
        if not old or not new:
            continue
        middle = statistics.median(old), statistics.median(new)
        reported = [", ".join(f"{number:,.5g}" for number in side) for side in (old, new)]
        lines.append(
            f"| {what} | {reported[0]} | {reported[1]} | {middle[0]:,.5g}, {middle[1]:,.5g} | "
            f"{middle[1] / middle[0]:.2f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=__doc__)
    parser.add_argument("revision")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default="capture,apply", help="parts of the benchmark, comma-separated")
    parser.add_argument("--events", type=int, default=200_000)
    given = parser.parse_args()
    before: list[Figured] = []
    now: list[Figured] = []
    with revision(given.revision) as tree:
        if tree is None:
            sys.exit(f"git has no revision {given.revision}")
        for pair in range(given.pairs):
            sides = [(before, tree), (now, ROOT)]
            for kept, where in sides if pair % 2 == 0 else sides[::-1]:
                kept.append(run_once(where, given.only, given.events))
                print(f"pair {pair + 1}, {'before' if kept is before else 'now'}: {kept[-1]}", flush=True)
    print("\n".join(table(before, now)))


if __name__ == "__main__":
    main()
