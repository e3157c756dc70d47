"""`rowlock verify`: compares every row of the sources with its row in the target, also while writes go on.

The two servers may order keys differently, so no merge of two sorted streams is attempted. The source is paged in its own
key order and the target is asked for exactly these keys; then the target's rows (of this source alone, by the columns
that `add:` gives) are paged and the source is asked for theirs. What differs is a suspect only: it is looked at again, for
at most `settle_s`, until it has settled or remains (rowlock/inspect/compare.py). Memory holds a page of each side and the suspects.
Both sides are read to their ends: only a table with more differences than are kept is given up, and said to differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from consumer.errors import ConsumerError, TargetConfigError, UnitStoppedError
from consumer.targets.dialect import open_reading
from rowlock.errors import CommandError
from rowlock.inspect.compare import RowDifference, Shape, Suspects, compare_page
from rowlock.inspect.pairs import Pair, pairs
from rowlock.inspect.table_sides import Sides
from rowlock.inspect.topics.sides import TopicSides, unclaimed, written_table
from rowlock.views.target import RowsView, TargetView, source_session, target_session
from schemas.backoff import pause_after
from schemas.config.kinds.targets import target_kind
from schemas.config.model import Config, TargetConfig
from schemas.table.model import Key, Row

PAGE = 2000
SUSPECTS = 10_000
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class VerifyLimits:
    """`settle_s`: how long suspects may take; `page`: rows of a read; `suspects`: how many keys are looked at again at a
    time, and how many differences are kept. `now`: monotonic seconds; `sleep`: waits that many."""

    settle_s: float
    page: int = PAGE
    suspects: int = SUSPECTS
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(slots=True)
class Result:
    """The result of one pair. `rows`: compared rows of the source; `problem`: why it could not be compared.

    `complete`: every row of both sides was compared; else reading ended after as many differences as are kept.
    `more`: there are more differences than are kept, or may be. `note`: what explains differences.
    """

    pair: Pair
    rows: int = 0
    findings: list[RowDifference] = field(default_factory=list)
    complete: bool = False
    more: bool = False
    problem: str = ""
    note: str = ""

    @property
    def equal(self) -> bool:
        """Never of rows that were not compared."""
        return self.complete and not self.findings and not self.problem

    def as_dict(self) -> dict[str, object]:
        """Return the documented JSON object."""
        pair = self.pair
        return {
            "pipeline": pair.pipeline,
            "source": pair.source,
            "source_table": f"{pair.table.db}.{pair.table.name}",
            "target": pair.target,
            "target_table": f"{pair.routed.schema}.{pair.routed.table}",
            "rows": self.rows,
            "equal": self.equal,
            "complete": self.complete,
            "more": self.more,
            "problem": self.problem or None,
            "note": self.note or None,
            "differences": [
                {"kind": str(each.kind), "key": each.key, "columns": each.columns, "moving": each.moving}
                for each in self.findings
            ],
        }


def verify(
    config: Config, wanted: Iterable[Pair], *, settle_s: float, page: int = PAGE, suspects: int = SUSPECTS
) -> Iterator[Result]:
    """Compare each pair. Raises CommandError when a server does not answer."""
    limits = VerifyLimits(settle_s, page, suspects)
    claims: dict[str, list[Pair]] = {}
    for pair in wanted:
        if pair.problem:
            yield Result(pair, problem=pair.problem)
            continue
        target = config.targets[pair.target]
        kind = target_kind(target.type)
        if kind.events:
            yield _with_topic(config, pair, limits, claims)
        elif kind.batches:
            yield Result(
                pair,
                problem=f"rows of a target of type {target.type!r} cannot be read by key, nothing was compared",
            )
        else:
            source = config.sources[pair.source]
            with (
                source_session(source, pair.source, pair.table.db, "verify") as left,
                target_session(target, pair.target, "verify") as right,
            ):
                yield compare_pair(pair, left, right, limits)


def _with_topic(config: Config, pair: Pair, limits: VerifyLimits, claims: dict[str, list[Pair]]) -> Result:
    """Compare a pair whose target is a topic. `claims`: target → the pairs that write there, as far as they were asked for."""
    if pair.routed.topic is not None and not pair.routed.topic.names_origin and pair.target not in claims:
        names = [name for name, options in config.pipelines.items() if options.target == pair.target]
        claims[pair.target] = pairs(config, names)
    if why := unclaimed(pair, claims.get(pair.target, ())):
        return Result(pair, problem=why)
    target = config.targets[pair.target]
    with source_session(config.sources[pair.source], pair.source, pair.table.db, "verify") as left:
        return compare_topic(pair, left, target, limits)


def compare_topic(pair: Pair, left: RowsView, target: TargetConfig, limits: VerifyLimits) -> Result:
    """Compare the rows of a pair's source with those that its topic leaves. Raises CommandError: no broker answers."""
    result = Result(pair)
    try:
        with open_reading(target, written_table(pair), pair.routed.added) as reading:
            result.note = reading.note
            sides = TopicSides(pair, left, reading, limits.page)
            compare_sides(sides, result, limits)
    except (TargetConfigError, UnitStoppedError) as error:
        result.problem = str(error)
    except ConsumerError as error:
        raise CommandError(f"target {pair.target}: {error}") from error
    return result


def compare_pair(pair: Pair, left: RowsView, right: TargetView, limits: VerifyLimits) -> Result:
    """Compare all rows of one pair; `left` and `right` are sessions with its source and its target."""
    result = Result(pair)
    try:
        sides = Sides.open(pair, left, right, limits.page)
    except (TargetConfigError, CommandError) as error:
        result.problem = str(error)
        return result
    compare_sides(sides, result, limits)
    return result


def compare_sides(sides: Compared, result: Result, limits: VerifyLimits) -> None:
    """Compare all rows of both sides, and say in `result` what is found."""
    _Comparison(sides, result, Suspects(sides.shape, limits.suspects), limits).run()


class Compared(Protocol):
    """Both ends of a pair, as the comparison asks for them; rows by key. `page`: rows of a read."""

    @property
    def shape(self) -> Shape: ...
    @property
    def page(self) -> int: ...

    def source_pages(self) -> Iterator[Mapping[Key, Row]]:
        """Yield all rows of the source, in its order."""

    def target_pages(self) -> Iterator[Mapping[Key, Row]]:
        """Yield all rows of the target that are of this source."""

    def source_rows(self, rows: Iterable[Row]) -> Mapping[Key, Row]:
        """Return the source's present rows that have the keys of `rows`."""

    def target_rows(self, keys: Iterable[Key]) -> Mapping[Key, Row]:
        """Return the target's present rows that have these keys."""


@dataclass(slots=True)
class _Comparison:
    """Reads both sides to their ends. When as many keys are suspects as are kept, it waits for them and reads on behind
    the last compared key; what does not settle is a difference, and only as many differences end the reading early."""

    sides: Compared
    result: Result
    suspects: Suspects
    limits: VerifyLimits

    def run(self) -> None:
        read = self._missing_and_different() and self._extra()
        self._settle()
        self.result.complete = read

    def _missing_and_different(self) -> bool:
        """Page the source. False: there are too many differences to go on."""
        for source in self.sides.source_pages():
            target = self.sides.target_rows(source)
            self.result.rows += len(source)
            if not self._suspect(source, target):
                return False
        return True

    def _extra(self) -> bool:
        """Page the target. False: there are too many differences to go on."""
        for target in self.sides.target_pages():
            source = self.sides.source_rows(target.values())
            # A row that both have was compared above; here only what the source lacks is news.
            alone = {key: row for key, row in target.items() if key not in source}
            if not self._suspect({}, alone):
                return False
        return True

    def _suspect(self, source: Mapping[Key, Row], target: Mapping[Key, Row]) -> bool:
        waiting = compare_page(self.sides.shape, source, target)
        while waiting := self.suspects.add(waiting, source, target):
            self._settle()
            if len(self.result.findings) >= self.limits.suspects:
                self.result.more = True
                return False
        return True

    def _settle(self) -> None:
        """Look at the suspects again until they have settled, or have had their time: the rest are differences."""
        sides, limits = self.sides, self.limits
        deadline, looks = limits.now() + limits.settle_s, 0
        while len(self.suspects) and limits.now() < deadline:
            looks += 1
            limits.sleep(pause_after(looks, FIRST_PAUSE_S, LONGEST_PAUSE_S))
            for chunk in self.suspects.chunks(sides.page):
                source = sides.source_rows(chunk.values())
                self.suspects.observe(chunk, source, sides.target_rows(chunk))
        found = self.result.findings + self.suspects.give_up()
        self.result.findings, self.result.more = (
            found[: self.limits.suspects],
            len(found) > self.limits.suspects or self.result.more,
        )
