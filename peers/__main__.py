"""`python -m peers --corpus DIR`: run the peers' cases through a real system, and report the outcome of
every table.

[--targets postgres,mysql,mariadb] [--sources mariadb,mysql] [--behind N] [--suite NAME] [--limit N] [--batch
N] [--report FILE] [--give-keys] [--patience S] [--source-options JSON] [--pipeline-options JSON]; exit 0: no
table is different, none stopped without a remedy, no source stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deploy.embedded.services import combine_services
from peers.cases import Case, read
from peers.facts import Found, found, unnoticed
from peers.judge import BAD, Judged, Verdict
from peers.rounds import Played, play
from peers.system import KINDS, Batch, Options, Servers, batch


@dataclass
class Report:
    """Sums over all batches. `files`: of which a server took at least one statement."""

    files: set[str] = field(default_factory=set)
    cases: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    verdicts: dict[str, Counter[str]] = field(default_factory=dict)
    why: Counter[str] = field(default_factory=Counter)
    bad: list[dict[str, Any]] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    sources_stopped: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    unnoticed: list[str] = field(default_factory=list)  # rows that were spoilt, and the judge did not see it

    @property
    def fine(self) -> bool:
        return not (self.bad or self.sources_stopped or self.unnoticed)

    def add(self, played: Sequence[Played], seen: Found) -> None:
        self.cases += len({each.case.name for each in played})
        for each in played:
            self.accepted[each.server.kind] += each.accepted
            self.refused[each.server.kind] += len(each.refused)
            self.refusals.update(re.sub(r"'[^']*'|\d+", "…", words)[:80] for _, words in each.refused)
            if each.accepted:
                self.files |= set(each.case.files)
        owners = {name: each for each in played for name in each.names.values()}
        for one in seen.tables:
            self._count(one, owners[one.place.db])
        self.missing.update(state for _, state in seen.missing)
        self.sources_stopped += [f"{name} {why}" for name, why in seen.sources_ill.items()]

    def _count(self, one: Judged, of: Played) -> None:
        column = f"{one.place.source} → {one.place.pipeline}"
        self.verdicts.setdefault(column, Counter())[one.verdict] += 1
        if one.verdict is Verdict.EQUAL and not one.rows:
            self.verdicts[column]["of these without rows"] += 1
        if one.verdict is not Verdict.EQUAL:
            self.why[f"{one.verdict}: {_general(one, of)}"] += 1
        if one.verdict in BAD:
            refused = [list(each) for each in of.refused]
            self.bad.append({**asdict(one), "case": asdict(of.case), "refused": refused})

    def lines(self) -> list[str]:
        out = [f"{len(self.files)} files taken, {self.cases} cases"]
        out += [f"{k}: {n} statements accepted, {self.refused[k]} refused" for k, n in self.accepted.items()]
        for column, counts in sorted(self.verdicts.items()):
            out.append(f"{column}: " + ", ".join(f"{verdict} {n}" for verdict, n in counts.most_common()))
        total = Counter[str]()
        for counts in self.verdicts.values():
            total.update(counts)
        out.append("all: " + ", ".join(f"{v} {total[v]}" for v in Verdict))
        out.append(f"tables that are no more: {dict(self.missing)}")
        out.append(f"sources stopped: {len(self.sources_stopped)}")
        out += [f"  {each}" for each in self.sources_stopped]
        out += [f"JUDGE WRONG: spoilt, and not seen: {each}" for each in self.unnoticed]
        out += [f"  {n} × {why}" for why, n in self.why.most_common(60)]
        out += [
            f"BAD {each['verdict']} {each['place']} {each['why'][:200]} case {each['case']['name']}"
            for each in self.bad
        ]
        return out

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "files": sorted(self.files)}


def _general(one: Judged, of: Played) -> str:
    """Return the reason without what is this table's own: names, and the statement if there is one."""
    text = one.why.replace(f"{one.place.db}.{one.place.table}", "T").replace(one.place.table, "T")
    for name in of.names.values():
        text = text.replace(name, "D")
    text = re.sub(
        r"(offset \d+: )?(ALTER|CREATE|DROP|RENAME)\b.*?(?=: this version|$)", r"\2 …", text, flags=re.DOTALL
    )
    return re.sub(r"\d+", "N", text.replace(of.names[""][:7], "P"))[:200]


def run_batch(made: Batch, cases: Sequence[Case], report: Report) -> None:
    played = []
    for number, case in enumerate(cases):
        names = {
            mark: f"{made.prefix}{number:03d}{f'_{at}' if at else ''}"
            for at, mark in enumerate(case.databases)
        }
        played += [Played(case, server, names, made.options.keys) for server in made.servers.sources.values()]
    for each in played:
        each.begin()
    with notified("statements"):
        play(played, made.options.behind, made.ends, made.release, made.read)
    with notified("arriving"):
        reported = made.caught_up()
    if reported.startswith("not within"):
        report.unfinished.append(reported)
    with notified("judging"):
        seen = found(made.config)
        report.add(played, seen)
    report.unnoticed += map(str, unnoticed(made.config, made.spoil, seen))


@contextlib.contextmanager
def notified(what: str) -> Iterator[None]:
    """Say how long it took."""
    began = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)


def by_files(cases: Sequence[Case]) -> list[Case]:
    """Return them so that those of files that no earlier one is of come first."""
    seen: set[str] = set()
    first: list[Case] = []
    others: list[Case] = []
    for each in cases:
        (others if seen.issuperset(each.files) else first).append(each)
        seen |= set(each.files)
    return first + others


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m peers", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--targets", default="postgres,mysql,mariadb")
    parser.add_argument("--sources", default="mariadb,mysql")
    parser.add_argument("--behind", type=int, default=0)
    parser.add_argument("--suite")
    parser.add_argument("--only", default="", help="only cases whose name holds this text")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--skip", type=int, default=0, help="leave as many out first")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the cases")
    parser.add_argument("--batch", type=int, default=60, help="cases of one run")
    parser.add_argument("--give-keys", action="store_true", help="give tables without a key an invisible one")
    parser.add_argument("--patience", type=float, default=1200, help="seconds that a batch is waited for")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--source-options", default="{}")
    parser.add_argument("--pipeline-options", default="{}")
    given = parser.parse_args()
    for kind in (*given.targets.split(","), *given.sources.split(",")):
        if kind not in KINDS:
            parser.error(f"{kind!r} is none of {', '.join(KINDS)}")
    cases = [each for each in read(given.corpus, given.suite) if given.only in each.name]
    random.Random(given.seed).shuffle(cases)
    cases = by_files(cases)[given.skip :][: given.limit]
    options = Options(
        given.behind,
        given.give_keys,
        json.loads(given.source_options),
        json.loads(given.pipeline_options),
        given.patience,
    )
    report = Report()
    servers = Servers.of(given.sources.split(","), given.targets.split(","))
    folder = Path(tempfile.mkdtemp(prefix="peers"))
    with combine_services(*servers.all):
        for at in range(0, len(cases), given.batch):
            started, prefix = time.monotonic(), f"p{secrets.token_hex(3)}"
            with batch(servers, prefix, folder / prefix, options) as made:
                run_batch(made, cases[at : at + given.batch], report)
            print(
                f"--- {min(at + given.batch, len(cases))} of {len(cases)} cases, "
                f"{time.monotonic() - started:.0f} s, log {folder / prefix}",
                flush=True,
            )
            print("\n".join(report.lines()), flush=True)
            if given.report:
                given.report.write_text(json.dumps(report.as_dict(), ensure_ascii=False, indent=1))
    return 0 if report.fine else 1


if __name__ == "__main__":
    sys.exit(main())
