"""What is found of every table after a batch: status, quarantine, and rows of both sides compared to their ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from rowlock.errors import CommandError
from rowlock.inspect.quarantine import held_events
from rowlock.inspect.status import Status, StatusReader
from rowlock.inspect.verify import Pair, Result, pairs, verify
from schemas.config.model import Config
from schemas.wire.records import table_topic
from tests.peers.judge import Facts, Judged, Place, judged

SETTLE_S = 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """`tables`: of each place that the sources have now; `gone`: units whose table is no more, with their state;
    `sources_ill`: sources that do not run, and why; `problems`: what status says beside."""

    tables: tuple[Judged, ...]
    gone: tuple[tuple[str, str], ...]
    sources_ill: dict[str, str]
    problems: tuple[str, ...]


def status_of(config: Config) -> Status:
    reader = StatusReader(config)
    try:
        return reader.read()
    finally:
        reader.close()


def found(config: Config) -> Found:
    """Judge every table at every target. Raises CommandError when a server does not answer."""
    status = status_of(config)
    held: dict[tuple[str, str], set[str]] = defaultdict(set)
    for entry in held_events(config):
        held[entry.pipeline, entry.topic].add(entry.held.key)
    places = {_place(pair): pair for pair in _all_pairs(config)}
    said = _said(config, status, places)
    out = []
    for place, pair in places.items():
        facts = replace(said[place], held=held[place.pipeline, _topic(config, place)])
        if facts.state not in ("stopped", "left out"):
            facts = _compared(config, pair, facts)
        out.append(judged(place, facts))
    topics = {(place.pipeline, _topic(config, place)) for place in places}
    gone = [(each.topic, each.state) for each in status.units if (each.pipeline, each.topic) not in topics]
    ill = {
        each.name: f"{each.state}: {each.reason}"
        for each in status.sources
        if each.state not in ("running", "finished")
    }
    return Found(tuple(out), tuple(gone), ill, status.problems)


def _place(pair: Pair) -> Place:
    return Place(pair.pipeline, pair.source, pair.table.db, pair.table.name)


def _topic(config: Config, place: Place) -> str:
    return table_topic(config.kafka.prefix, place.source, place.db, place.table)


def _all_pairs(config: Config) -> Iterator[Pair]:
    """Every pipeline has the same sources and routes, so the sources are read once."""
    first, *others = config.pipelines
    for pair in pairs(config, [first]):
        yield pair
        for name in others:
            yield replace(pair, pipeline=name, target=config.pipelines[name].target)


def _said(config: Config, status: Status, places: dict[Place, Pair]) -> dict[Place, Facts]:
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


def _compared(config: Config, pair: Pair, facts: Facts) -> Facts:
    (result,) = _verified(config, pair)
    keys = [msgspec.json.encode(each.key).decode() for each in result.findings]
    return replace(
        facts,
        compared=result.complete,
        rows=result.rows,
        differing=keys,
        problem=result.problem or facts.problem,
    )


def _verified(config: Config, pair: Pair) -> list[Result]:
    try:
        return list(verify(config, [pair], settle_s=SETTLE_S))
    except (CommandError, ValueError) as error:
        return [Result(pair, problem=f"verify: {error}")]
