"""`rowlock verify`: compares every row of the sources with its row in the target, also while writes go on.

The two servers may order keys differently, so no merge of two sorted streams is attempted. The source is paged in its own
key order and the target is asked for exactly these keys; then the target's rows (of this source alone, by the columns
that `add:` gives) are paged and the source is asked for theirs. What differs is a suspect only: it is looked at again, for
at most `settle_s`, until it has settled or remains (rowlock/compare.py). Memory holds a page of each side and the suspects.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from consumer.errors import TargetConfigError
from consumer.model import TargetTable
from consumer.router import Route, Routed, resolve, target_table, wanted_table
from rowlock.compare import Finding, Shape, Suspects, compare_page
from rowlock.errors import CommandError
from rowlock.source_view import selected_tables
from rowlock.target_view import View, source_session, target_session
from schemas.config import Config, SourceConfig
from schemas.table import Key, Row, Table, UniqueIndex

PAGE = 2000
SUSPECTS = 10_000
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A source table and where it goes. `problem`: why it cannot be replicated; then only the table's name is known."""

    pipeline: str
    source: str
    table: Table
    target: str
    routed: Routed
    problem: str = ""

    @property
    def label(self) -> str:
        return f"{self.source}:{self.table.db}.{self.table.name} → {self.target}:{self.routed.schema}.{self.routed.table}"


@dataclass(slots=True)
class Result:
    """What came of one pair. `rows`: compared rows of the source; `problem`: why it could not be compared."""

    pair: Pair
    rows: int = 0
    findings: list[Finding] = field(default_factory=list)
    more: bool = False  # there are more differences than are kept
    problem: str = ""

    @property
    def equal(self) -> bool:
        return not self.findings and not self.problem

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
            "more": self.more,
            "problem": self.problem or None,
            "differences": [
                {"kind": str(each.kind), "key": each.key, "columns": each.columns, "moving": each.moving}
                for each in self.findings
            ],
        }


def pairs(config: Config, pipelines: Iterable[str], pattern: str | None = None) -> list[Pair]:
    """Return what there is to compare, read from the sources. `pattern`: "db.table", only this source table."""
    out: list[Pair] = []
    for pipeline in pipelines:
        options = config.pipelines[pipeline]
        routes = [Route.of(route) for route in options.routes]
        for source in options.sources:
            for table, problem in _tables(config.sources[source], source):
                routed = resolve(routes, source, table.db, table.name)
                if routed and pattern in (None, f"{table.db}.{table.name}"):
                    out.append(Pair(pipeline, source, table, options.target, routed, problem))
    return out


def _tables(source: SourceConfig, name: str) -> Iterator[tuple[Table, str]]:
    """Yield the selected tables, each with why it cannot be compared: one such table must not hide the others."""
    selected = selected_tables(source, name)
    yield from ((table, "") for table in selected.tables)
    nothing = UniqueIndex(name="PRIMARY", parts=())
    for (db, table), why in selected.unfit.items():
        yield Table(db=db, name=table, columns=(), key=nothing), why


def verify(config: Config, wanted: Iterable[Pair], *, settle_s: float, page: int = PAGE) -> Iterator[Result]:
    """Compare each pair. Raises CommandError when a server does not answer."""
    for pair in wanted:
        if pair.problem:
            yield Result(pair, problem=pair.problem)
            continue
        source, target = config.sources[pair.source], config.targets[pair.target]
        with (
            source_session(source, pair.source, pair.table.db, "verify") as left,
            target_session(target, pair.target, "verify") as right,
        ):
            yield _verify(pair, left, right, settle_s, page)


def _verify(pair: Pair, left: View, right: View, settle_s: float, page: int) -> Result:
    result = Result(pair)
    try:
        sides = Sides.open(pair, left, right, page)
    except (TargetConfigError, CommandError) as error:
        result.problem = str(error)
        return result
    suspects = Suspects(sides.shape, SUSPECTS)
    result.rows = _missing_and_different(sides, suspects)
    _extra(sides, suspects)
    _settle(sides, suspects, settle_s)
    result.findings, result.more = suspects.findings, suspects.overflow
    return result


@dataclass(frozen=True, slots=True)
class Sides:
    """Both ends of a pair. Rows and keys are the target's: the added columns are put on and taken off here."""

    left: View
    right: View
    source: TargetTable
    target: TargetTable
    shape: Shape
    added: tuple[str, ...]
    where: Mapping[str, str] | None
    page: int
    source_key: tuple[int, ...]  # ordinals in the target's row of the source's key columns

    @classmethod
    def open(cls, pair: Pair, left: View, right: View, page: int) -> Sides:
        """Raises TargetConfigError when the target table does not fit, CommandError when it is missing."""
        wanted = wanted_table(pair.table, pair.routed)
        real = right.read_table(pair.routed.schema, pair.routed.table)
        if real is None:
            raise CommandError(f"the target has no table {pair.routed.schema}.{pair.routed.table}")
        target = target_table(wanted, real, tuple(name for name, _ in pair.routed.added))
        source = target_table(pair.table, pair.table)
        values = tuple(value for _, value in pair.routed.added)
        at = pair.table.indexes_of(pair.table.key.columns)
        return cls(left, right, source, target, Shape.of(target), values, pair.routed.where, page, at)

    def source_page(self, after: Row | None) -> list[Row]:
        rows = self.left.fetch_rows(self.source, self._key_of(after), self.page)
        return [row + self.added for row in rows]

    def target_page(self, after: Row | None) -> list[Row]:
        where = dict(self.where) if self.where else None
        return self.right.fetch_rows(self.target, self.shape.key(after) if after else None, self.page, where)

    def source_rows(self, rows: Iterable[Row]) -> dict[Key, Row]:
        """Return the source's present rows that have the keys of `rows`, by target key."""
        keys = [key for row in rows if (key := self._key_of(row))]
        return self.shape.by_key(row + self.added for row in self.left.fetch_keys(self.source, keys))

    def target_rows(self, keys: Iterable[Key]) -> dict[Key, Row]:
        return self.shape.by_key(self.right.fetch_keys(self.target, list(keys)))

    def _key_of(self, row: Row | None) -> Key | None:
        return None if row is None else tuple(row[i] for i in self.source_key)


def _missing_and_different(sides: Sides, suspects: Suspects) -> int:
    total, rows = 0, sides.source_page(None)
    while rows and not suspects.overflow:
        total += len(rows)
        source = sides.shape.by_key(rows)
        target = sides.target_rows(source)
        suspects.add(compare_page(sides.shape, source, target), source, target)
        rows = sides.source_page(rows[-1]) if len(rows) == sides.page else []
    return total


def _extra(sides: Sides, suspects: Suspects) -> None:
    rows = sides.target_page(None)
    while rows and not suspects.overflow:
        target = sides.shape.by_key(rows)
        source = sides.source_rows(rows)
        # A row that both have was compared above; here only what the source lacks is news.
        alone = {key: row for key, row in target.items() if key not in source}
        suspects.add(compare_page(sides.shape, {}, alone), {}, alone)
        rows = sides.target_page(rows[-1]) if len(rows) == sides.page else []


def _settle(sides: Sides, suspects: Suspects, settle_s: float) -> None:
    deadline, pause = time.monotonic() + settle_s, FIRST_PAUSE_S
    while len(suspects) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(LONGEST_PAUSE_S, pause * 2)
        for chunk in suspects.chunks(sides.page):
            source = sides.source_rows(chunk.values())
            suspects.observe(chunk, source, sides.target_rows(chunk))
