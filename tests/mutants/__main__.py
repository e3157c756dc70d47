"""`python -m tests.mutants [-n WORKERS] [-k TEXT] [--sample] [--fresh COUNT [--seed SEED]]`: which mutants do their tests not find?"""

from __future__ import annotations

import argparse
import sys

from tests.mutants import MUTANTS, SAMPLE
from tests.mutants.fresh import drawn
from tests.mutants.run import ROOT, TIMES, run
from tests.mutants.survivors import known_survivor


def main() -> int:
    """Return 0 when every mutant was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("-n", type=int, default=2, help="how many live at the same time (2)")
    parser.add_argument("-k", default="", help="only those whose line or tests hold this text")
    parser.add_argument("--sample", action="store_true", help="only the few that .ci/run tries")
    parser.add_argument(
        "--fresh", type=int, metavar="COUNT", help="as many that nobody chose, drawn by --seed"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chosen = SAMPLE if options.sample else MUTANTS
    if options.fresh is not None:
        chosen = drawn(ROOT, options.fresh, options.seed)
        for mutant in chosen:
            if why := known_survivor(mutant):
                print(f"known    {mutant.name}: {why}", flush=True)
        chosen = [mutant for mutant in chosen if not known_survivor(mutant)]
    mutants = [each for each in chosen if options.k in f"{each.name} {' '.join(each.tests)}"]
    if not mutants:
        parser.error(f"no mutant holds {options.k!r}")
    left = []
    # All of a folder's tests have run once before; one that loops must not take ten times as long.
    for result in run(mutants, options.n, TIMES if options.fresh is None else 2):
        print(f"{result.verdict:8} {result.mutant.name}{result.late}", flush=True)
        # A list's mutant that cannot even be imported is a mistake of the list; a drawn one is found by every test.
        if result.verdict == "survived" or (result.verdict == "error" and options.fresh is None):
            left.append(result)
    for each in left:
        print(f"\n{each.verdict}: {each.mutant.name}\n  tests: {' '.join(each.mutant.tests)}\n{each.said}")
    print(f"\n{len(mutants) - len(left)} of {len(mutants)} mutants found")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
