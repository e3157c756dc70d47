"""Tells which mutants their tests do not find: the named bugs, or as many fresh ones as --fresh says."""

from __future__ import annotations

import argparse
import sys

from tests.mutants.fresh import drawn
from tests.mutants.mutant import Mutant
from tests.mutants.named_bugs import NAMED_BUGS, draw_sample
from tests.mutants.run import ROOT, TIMES, run
from tests.mutants.survivors import known_survivor


def main() -> int:
    """Return 0 if every mutant is found."""
    options = _parse()
    mutants = [each for each in _choose(options) if options.k in f"{each.name} {' '.join(each.tests)}"]
    if not mutants:
        print(f"no mutant has {options.k!r} in its line or tests")
        return 2
    left = []
    # The tests of fresh mutants are whole folders: one that loops must not take ten times as long as those.
    for result in run(mutants, options.n, TIMES if options.fresh is None else 2):
        print(f"{result.verdict:8} {result.mutant.name}{result.late}", flush=True)
        # A named bug that cannot be imported is a mistake in the list; such a fresh mutant is found.
        if result.verdict == "survived" or (result.verdict == "error" and options.fresh is None):
            left.append(result)
    for each in left:
        print(f"\n{each.verdict}: {each.mutant.name}\n  tests: {' '.join(each.mutant.tests)}\n{each.said}")
    print(f"\n{len(mutants) - len(left)} of {len(mutants)} mutants found")
    return 1 if left else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("-n", type=int, default=2, help="how many are tried at the same time (2)")
    parser.add_argument(
        "-k", default="", metavar="TEXT", help="only those with this text in their line or tests"
    )
    parser.add_argument("--sample", action="store_true", help="only a sample of the named bugs")
    parser.add_argument(
        "--fresh", type=int, metavar="COUNT", help="so many fresh mutants instead of named bugs"
    )
    parser.add_argument("--seed", type=int, default=1, help="draws the sample and the fresh mutants (1)")
    return parser.parse_args()


def _choose(options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants to try; print the fresh ones that no test has to find."""
    if options.fresh is None:
        return draw_sample(options.seed) if options.sample else NAMED_BUGS
    chosen = []
    for mutant in drawn(ROOT, options.fresh, options.seed):
        if why := known_survivor(mutant):
            print(f"known    {mutant.name}: {why}", flush=True)
        else:
            chosen.append(mutant)
    return chosen


if __name__ == "__main__":
    sys.exit(main())
