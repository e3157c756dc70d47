"""`rowlock verify`: compares every row of the sources with its row in the target, also during writes.

The two servers may order keys differently, so two sorted streams are not merged. The source is read page
by page in its own key order, and the target is asked for exactly these keys. Then the target's rows (of
this source alone, by the columns of `add:`) are read page by page, and the source is asked for theirs. A
difference is only a suspect at first: it is compared again, for at most `settle_s`, until it has settled
or remains (rowlock/inspect/compare.py). Memory holds a page of each side and the suspects. Both sides
are read to their ends; only a table with more differences than are kept is given up and reported as
different.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, Self, cast

from consumer.errors import ConsumerError, TargetConfigError, UnitStoppedError
from consumer.targets.dialect import open_reading
from consumer.targets.session import SqlSession
from rowlock.errors import CommandError
from rowlock.inspect.compare import RowDifference, Suspects, TableShape, compare_page
from rowlock.inspect.pairs import TablePair, list_table_pairs
from rowlock.inspect.table_sides import TableSides
from rowlock.inspect.topics.sides import TopicSides, build_written_table, explain_unclaimed
from rowlock.views.target import RowsView, source_session, target_session
from schemas.backoff import pause_after
from schemas.config.kinds.targets import find_target_kind
from schemas.config.model import Config, TargetConfig
from schemas.table.model import Key, Row

COMPARED_PAGE_ROWS = 2000
SUSPECTS = 10_000
FIRST_RECHECK_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class VerifyLimits:
    """The limits of a comparison, its clock, and what follows it."""

    settle_s: float
    """Seconds that suspects may take to settle."""
    page: int = COMPARED_PAGE_ROWS
    """Rows per read."""
    suspects: int = SUSPECTS
    """How many keys are compared again at a time, and how many differences are kept."""
    now: Callable[[], float] = time.monotonic
    """Monotonic seconds."""
    sleep: Callable[[float], None] = time.sleep
    """Waits for a number of seconds."""
    on_page: Callable[[int, int], None] = lambda _source, _target: None
    """Called after each page with the rows of the source and of the target that were compared."""
    on_settle: Callable[[int], None] = lambda _rows: None
    """Called with the number of suspects before they are read again, which may take `settle_s`."""


@dataclass(frozen=True, slots=True)
class PairResult:
    """The result of one pair."""

    pair: TablePair
    rows: int = 0
    """Compared rows of the source."""
    kept: int = 0
    """Rows that the source removed by statements and that the target keeps (`partitions: keep`)."""
    findings: list[RowDifference] = field(default_factory=list)
    complete: bool = False
    """Whether every row of both sides was compared; otherwise reading ended after as many differences as
    are kept.
    """
    more: bool = False
    """Whether there are, or may be, more differences than are kept."""
    problem: str = ""
    """Why the pair could not be compared."""
    note: str = ""
    """An explanation of differences."""

    @property
    def equal(self) -> bool:
        """True if all rows were compared, and all are equal; kept rows do not count."""
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
            "kept": self.kept,
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


def verify_pairs(
    config: Config,
    pairs: Iterable[TablePair],
    *,
    settle_s: float,
    page: int = COMPARED_PAGE_ROWS,
    suspects: int = SUSPECTS,
    on_page: Callable[[TablePair, int, int], None] = lambda _pair, _source, _target: None,
    on_settle: Callable[[TablePair, int], None] = lambda _pair, _rows: None,
) -> Iterator[PairResult]:
    """Compare each pair. Raises CommandError if a server does not answer.

    `on_page`: called after each page with the pair and the compared rows of its source and its target.
    `on_settle`: called with the pair and its differing rows before these are read again.
    """
    claims: dict[str, list[TablePair]] = {}
    for pair in pairs:
        limits = VerifyLimits(
            settle_s, page, suspects, on_page=partial(on_page, pair), on_settle=partial(on_settle, pair)
        )
        if pair.problem:
            yield PairResult(pair, problem=pair.problem)
            continue
        target = config.targets[pair.target]
        kind = find_target_kind(target.type)
        if kind.events:
            yield _with_topic(config, pair, limits, claims)
        elif kind.batches:
            yield PairResult(
                pair,
                problem=f"rows of a target of type {target.type!r} cannot be "
                "read by key, nothing was compared",
            )
        else:
            source = config.sources[pair.source]
            with (
                source_session(source, pair.source, pair.table.db, "verify") as left,
                target_session(target, pair.target, "verify") as right,
            ):
                yield compare_pair(pair, left, cast(SqlSession, right), limits)


def _with_topic(
    config: Config, pair: TablePair, limits: VerifyLimits, claims: dict[str, list[TablePair]]
) -> PairResult:
    """Compare a pair with a topic as its target. `claims` caches target → the pairs that write to it."""
    if pair.routed.topic is not None and not pair.routed.topic.names_origin and pair.target not in claims:
        names = [name for name, options in config.pipelines.items() if options.target == pair.target]
        claims[pair.target] = list_table_pairs(config, names)
    if why := explain_unclaimed(pair, claims.get(pair.target, ())):
        return PairResult(pair, problem=why)
    target = config.targets[pair.target]
    with source_session(config.sources[pair.source], pair.source, pair.table.db, "verify") as left:
        return compare_topic(pair, left, target, limits)


def compare_topic(pair: TablePair, left: RowsView, target: TargetConfig, limits: VerifyLimits) -> PairResult:
    """Compare the rows of a pair's source with those that its topic yields. Raises CommandError if no
    broker answers.
    """
    try:
        with open_reading(target, build_written_table(pair), pair.routed.added) as reading:
            comparison = _Comparison.begin(TopicSides(pair, left, reading, limits.page), limits)
            try:
                result = comparison.compare_pair(pair)
            except (TargetConfigError, UnitStoppedError) as error:  # what was found until then is kept
                result = comparison.build_result(pair, problem=str(error))
            return replace(result, note=reading.note)
    except (TargetConfigError, UnitStoppedError) as error:
        return PairResult(pair, problem=str(error))
    except ConsumerError as error:
        raise CommandError.wrap_error(f"target {pair.target}", error) from error


def compare_pair(pair: TablePair, left: RowsView, right: SqlSession, limits: VerifyLimits) -> PairResult:
    """Compare all rows of one pair; `left` and `right` are sessions with its source and its target."""
    try:
        sides = TableSides.open(pair, left, right, limits.page)
    except (TargetConfigError, CommandError) as error:
        return PairResult(pair, problem=str(error))
    return compare_sides(pair, sides, limits)


def compare_sides(pair: TablePair, sides: ComparedSides, limits: VerifyLimits) -> PairResult:
    """Compare all rows of both sides of a pair."""
    return _Comparison.begin(sides, limits).compare_pair(pair)


class ComparedSides(Protocol):
    """Both sides of a pair as the comparison reads them; rows by key. `page`: rows per read."""

    @property
    def shape(self) -> TableShape: ...
    @property
    def page(self) -> int: ...

    def yield_source_pages(self) -> Iterator[Mapping[Key, Row]]:
        """Yield all rows of the source, in its order."""

    def yield_target_pages(self) -> Iterator[Mapping[Key, Row]]:
        """Yield all rows of the target that belong to this source."""

    def fetch_source_rows(self, rows: Iterable[Row]) -> Mapping[Key, Row]:
        """Return the source's present rows with the keys of `rows`."""

    def fetch_target_rows(self, keys: Iterable[Key]) -> Mapping[Key, Row]:
        """Return the target's present rows with these keys."""

    def find_kept_keys(self, keys: Iterable[Key]) -> Collection[Key]:
        """Return those of `keys` whose rows the target keeps although the source removed them."""


@dataclass(slots=True)
class _Comparison:
    """Reads both sides to their ends.

    When the limit of suspects is reached, it waits for them and continues after the last compared key. A
    suspect that does not settle is a difference; only as many differences as are kept end the reading
    early.
    """

    sides: ComparedSides
    suspects: Suspects
    limits: VerifyLimits
    rows: int = 0
    """Compared rows of the source."""
    kept: int = 0
    """Rows that the target keeps although the source removed them."""
    findings: list[RowDifference] = field(default_factory=list)
    more: bool = False
    """Whether there are, or may be, more differences than are kept."""

    @classmethod
    def begin(cls, sides: ComparedSides, limits: VerifyLimits) -> Self:
        """Return a comparison that has read nothing yet."""
        return cls(sides, Suspects(sides.shape, limits.suspects), limits)

    def compare_pair(self, pair: TablePair) -> PairResult:
        """Read both sides, and return what was found."""
        complete = self._compare_source_pages() and self._compare_target_pages()
        self._settle_suspects()
        return self.build_result(pair, complete=complete)

    def build_result(self, pair: TablePair, *, complete: bool = False, problem: str = "") -> PairResult:
        """Return what was found until now."""
        return PairResult(
            pair, self.rows, self.kept, self.findings, complete=complete, more=self.more, problem=problem
        )

    def _compare_source_pages(self) -> bool:
        """Compare the source page by page. False: there are too many differences to continue."""
        for source in self.sides.yield_source_pages():
            target = self.sides.fetch_target_rows(source)
            self.rows += len(source)
            self.limits.on_page(self.rows, 0)
            if not self._add_suspects(source, target):
                return False
        return True

    def _compare_target_pages(self) -> bool:
        """Compare the target page by page. False: there are too many differences to continue."""
        count = 0
        for target in self.sides.yield_target_pages():
            source = self.sides.fetch_source_rows(target.values())
            # Rows on both sides were compared above; here only rows that the source lacks are new.
            alone = {key: row for key, row in target.items() if key not in source}
            kept = self.sides.find_kept_keys(alone) if alone else ()
            self.kept += len(kept)
            for key in kept:
                del alone[key]
            count += len(target)
            self.limits.on_page(self.rows, count)
            if not self._add_suspects({}, alone):
                return False
        return True

    def _add_suspects(self, source: Mapping[Key, Row], target: Mapping[Key, Row]) -> bool:
        waiting = compare_page(self.sides.shape, source, target)
        while waiting := self.suspects.add_findings(waiting, source, target):
            self._settle_suspects()
            if len(self.findings) >= self.limits.suspects:
                self.more = True
                return False
        return True

    def _settle_suspects(self) -> None:
        """Compare the suspects again until they have settled, or their time is over: the rest are
        differences.
        """
        sides, limits = self.sides, self.limits
        if len(self.suspects) and limits.settle_s > 0:
            limits.on_settle(len(self.suspects))
        deadline, attempts = limits.now() + limits.settle_s, 0
        while len(self.suspects) and limits.now() < deadline:
            attempts += 1
            limits.sleep(pause_after(attempts, FIRST_RECHECK_PAUSE_S, LONGEST_PAUSE_S))
            for chunk in self.suspects.split_chunks(sides.page):
                source = sides.fetch_source_rows(chunk.values())
                self.suspects.observe_keys(chunk, source, sides.fetch_target_rows(chunk))
        found = self.findings + self.suspects.give_up()
        self.findings = found[: self.limits.suspects]
        self.more |= len(found) > self.limits.suspects
