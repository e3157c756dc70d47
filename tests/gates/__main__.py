"""`python -m tests.gates`: the figures of all gates; see CONTRIBUTING.md."""

from __future__ import annotations

import argparse
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from tests.gates.figures import list_breaches, list_figures, list_other_project
from tests.gates.measures import MEASURES
from tests.gates.path import trace_ways
from tests.gates.ratchet import Measure, list_worse, load_baseline, lower_values, write_baselines
from tests.gates.sample import draw_sentences, show_answers
from tests.gates.sources import ROOT, load_other, load_pages, load_product


def main() -> int:
    """Return 1 if `--update` left a value that is worse than its baseline."""
    parser = argparse.ArgumentParser(prog="python -m tests.gates", description=__doc__)
    parser.add_argument("--update", action="store_true", help="note what became better as the baseline")
    parser.add_argument("--accept", action="store_true", help="with --update: note what became worse as well")
    parser.add_argument(
        "--trace", action="store_true", help="also follow a row (starts Kafka, MariaDB, PostgreSQL)"
    )
    parser.add_argument(
        "--package", action="append", metavar="NAME", help="figures of an installed package instead"
    )
    parser.add_argument(
        "--below", metavar="PATH", help="what is counted in the files below a path instead, line by line"
    )
    parser.add_argument("--sample", type=int, metavar="COUNT", help="draw sentences instead")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (1)")
    parser.add_argument("--answers", type=Path, help="file for the sentences' places (build/sample-SEED.txt)")
    options = parser.parse_args()
    if options.package:
        for name in options.package:
            show(list_other_project(name, Path(sysconfig.get_path("purelib"))))
    elif options.below:
        everything = (*load_product(), *load_other())
        show(list_breaches(each for each in everything if each.path.startswith(options.below)))
    elif options.sample:
        draw(options.sample, options.seed, options.answers or ROOT / "build" / f"sample-{options.seed}.txt")
    elif options.update:
        return update(trace=options.trace, accept=options.accept)
    else:
        show(list_figures())
        if options.trace:
            way, alter = trace_ways()
            print(f"way of a row\n  {way.figure}; target: {way.target}\nway of an ALTER TABLE\n  {alter}")
    return 0


def show(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def draw(count: int, seed: int, answers: Path) -> None:
    """Print sentences, and write where they are to a file."""
    sentences = draw_sentences(load_product(), load_pages(), count, seed)
    for number, each in enumerate(sentences, 1):
        print(f"{number}. {each.text}")
    answers.parent.mkdir(parents=True, exist_ok=True)
    answers.write_text("\n".join(show_answers(sentences)))
    print(f"places: {answers}", file=sys.stderr)


def update(*, trace: bool, accept: bool) -> int:
    """Write the baselines, and print each value that changes; the way of a row keeps its baseline unless
    it is traced."""
    way = trace_ways()[0] if trace else Measure("way of a row", "", "", {}, is_list=False)
    measures = [each() for each in MEASURES.values()]
    next_values, worse = [], []
    for measure in (*measures, way):
        was = load_baseline(measure)
        now = was if measure is way and not trace else lower_values(measure, was, accept=accept)
        worse += [] if accept else list_worse(measure, was)
        for key in sorted({*was, *now}):
            if was.get(key) != now.get(key):
                print(f"{measure.gate}: {key}: {was.get(key, 0)} → {now.get(key, 0)}")
        next_values.append((measure, now))
    write_baselines(next_values)
    show(f"worse, not noted without --accept: {line}" for line in worse)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
