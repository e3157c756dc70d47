"""What is found of every table after a batch: status, quarantine, and rows of both sides compared to their
ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import cast

import msgspec

from consumer.targets.session import SqlSession
from peers.judge import Facts, Judged, Place, Verdict, judged
from rowlock.inspect.pairs import TablePair, list_table_pairs
from rowlock.inspect.quarantine import list_quarantined_events
from rowlock.inspect.status import Status, StatusReader
from rowlock.inspect.verify import PairResult, VerifyLimits, compare_pair
from rowlock.views.target import RowsView, source_session, target_session
from schemas.config.model import Config
from schemas.wire.records import format_former_table_topic

SETTLE_S = 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """`tables`: of each place that the sources have now; `missing`: units whose table no longer exists, with
    their state; `sources_ill`: sources that do not run, and why; `problems`: what else status reports;
    `pairs`: what was compared."""

    tables: tuple[Judged, ...]
    missing: tuple[tuple[str, str], ...]
    sources_ill: dict[str, str]
    problems: tuple[str, ...]
    pairs: dict[Place, TablePair]


def status_of(config: Config) -> Status:
    reader = StatusReader(config)
    try:
        return reader.read_status()
    finally:
        reader.close()


def found(config: Config) -> Found:
    """Judge every table at every target. Raises CommandError when a server does not answer."""
    status = status_of(config)
    held: dict[tuple[str, str], set[str]] = defaultdict(set)
    for entry in list_quarantined_events(config):
        held[entry.pipeline, entry.topic].add(entry.held.key)
    places = {_place(pair): pair for pair in _all_pairs(config)}
    reported = _said(config, status, places)
    out, comparer = [], Comparer(config)
    for place, pair in places.items():
        facts = replace(reported[place], held=held[place.pipeline, _topic(config, place)])
        if facts.state not in ("stopped", "left out"):
            facts = compared(comparer, pair, facts)
        out.append(judged(place, facts))
    comparer.close()
    topics = {(place.pipeline, _topic(config, place)) for place in places}
    missing = [(each.topic, each.state) for each in status.units if (each.pipeline, each.topic) not in topics]
    ill = {
        each.name: f"{each.state}: {each.reason}"
        for each in status.sources
        if each.state not in ("running", "finished")
    }
    return Found(tuple(out), tuple(missing), ill, status.problems, places)


def _place(pair: TablePair) -> Place:
    return Place(pair.pipeline, pair.source, pair.table.db, pair.table.name)


def _topic(config: Config, place: Place) -> str:
    return format_former_table_topic(config.kafka.prefix, place.source, place.db, place.table)


def _all_pairs(config: Config) -> Iterator[TablePair]:
    """Every pipeline has the same sources and routes, so the sources are read once."""
    first, *others = config.pipelines
    for pair in list_table_pairs(config, [first]):
        yield pair
        for name in others:
            yield replace(pair, pipeline=name, target=config.pipelines[name].target)


def _said(config: Config, status: Status, places: dict[Place, TablePair]) -> dict[Place, Facts]:
    """Return what status says of each place: of its table at the source first, then of its unit."""
    tables = {(each.name, table.table): table for each in status.sources for table in each.tables}
    units = {(each.pipeline, each.topic): each for each in status.units}
    out = {}
    for place in places:
        table = tables.get((place.source, f"{place.db}.{place.table}"))
        unit = units.get((place.pipeline, _topic(config, place)))
        if table is not None:
            out[place] = Facts(table.state, table.reason or "", table.remedy or "")
        elif unit is not None:
            out[place] = Facts(unit.state, unit.reason or "", unit.remedy or "")
        else:
            out[place] = Facts(problem="no unit, and status does not say why")
    return out


class Comparer:
    """Compares pairs over one session for each target, and one for the source's database that it is at."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._rights: dict[str, tuple[ExitStack, SqlSession]] = {}
        self._left: tuple[tuple[str, str], ExitStack, RowsView] | None = None

    def close(self) -> None:
        for stack, _ in self._rights.values():
            stack.close()
        if self._left is not None:
            self._left[1].close()
        self._rights, self._left = {}, None

    def result(self, pair: TablePair) -> PairResult:
        if pair.problem:
            return PairResult(pair, problem=pair.problem)
        try:
            return compare_pair(pair, self._read_source(pair), self._target(pair), VerifyLimits(SETTLE_S))
        except Exception as error:  # noqa: BLE001 - whatever keeps a table from being compared is its verdict
            self.close()
            return PairResult(pair, problem=f"verify: {type(error).__name__}: {error}")

    def _read_source(self, pair: TablePair) -> RowsView:
        place = (pair.source, pair.table.db)
        if self._left is None or self._left[0] != place:
            if self._left is not None:
                self._left[1].close()
            stack = ExitStack()
            source = self._config.sources[pair.source]
            self._left = (place, stack, stack.enter_context(source_session(source, *place, "verify")))
        return self._left[2]

    def _target(self, pair: TablePair) -> SqlSession:
        if pair.target not in self._rights:
            stack = ExitStack()
            target = self._config.targets[pair.target]
            self._rights[pair.target] = (
                stack,
                cast(SqlSession, stack.enter_context(target_session(target, pair.target, "verify"))),
            )
        return self._rights[pair.target][1]


def compared(comparer: Comparer, pair: TablePair, facts: Facts) -> Facts:
    result = comparer.result(pair)
    keys = [msgspec.json.encode(each.key).decode() for each in result.findings]
    problem = result.problem or facts.problem
    return replace(facts, compared=result.complete, rows=result.rows, differing=keys, problem=problem)


def unnoticed(config: Config, spoil: Callable[[Place], None], seen: Found) -> list[Place]:
    """Spoil a row of one equal table of each pipeline without rowlock; return those that still count as
    equal."""
    expected: dict[str, Place] = {}
    for one in seen.tables:
        if one.verdict is Verdict.EQUAL and one.rows:
            expected.setdefault(one.place.pipeline, one.place)
    out = []
    for place in expected.values():
        spoil(place)
        with closing(Comparer(config)) as comparer:
            facts = compared(comparer, seen.pairs[place], Facts("current"))
        if judged(place, facts).verdict is not Verdict.DIFFERENT:
            out.append(place)
    return out
