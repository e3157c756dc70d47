"""`python -m tests.mutants [-n WORKERS] [-k TEXT] [--sample]`: which mutants do their tests not find?"""

from __future__ import annotations

import argparse
import sys

from tests.mutants import MUTANTS, SAMPLE
from tests.mutants.run import run


def main() -> int:
    """Return 0 when every mutant was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("-n", type=int, default=2, help="how many live at the same time (2)")
    parser.add_argument("-k", default="", help="only those whose line or tests hold this text")
    parser.add_argument("--sample", action="store_true", help="only the few that .ci/run tries")
    options = parser.parse_args()
    chosen = SAMPLE if options.sample else MUTANTS
    mutants = [each for each in chosen if options.k in f"{each.name} {' '.join(each.tests)}"]
    if not mutants:
        parser.error(f"no mutant holds {options.k!r}")
    left = []
    for result in run(mutants, options.n):
        print(f"{result.verdict:8} {result.mutant.name}", flush=True)
        if result.verdict != "found":
            left.append(result)
    for each in left:
        print(f"\n{each.verdict}: {each.mutant.name}\n  tests: {' '.join(each.mutant.tests)}\n{each.said}")
    print(f"\n{len(mutants) - len(left)} of {len(mutants)} mutants found")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
