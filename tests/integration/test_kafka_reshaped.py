"""A route whose filter, columns or masks change over a topic that has rows: it is reported before a row is
written, and as long as rows are as they were."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from consumer.ordering.model import TopicOptions
from consumer.tables.router import ResolvedRoute
from rowlock.inspect.checks.flows import TableFlow
from rowlock.inspect.planned import stored
from rowlock.inspect.planned.plan import build_run_plan, plan_lines
from rowlock.inspect.status import ApplyUnitStatus, StatusReader
from schemas.config.model import Config
from tests.kits.attempts import RealUnit, TopicLists, UnplacedUnits
from tests.kits.copy import CopyOf
from tests.kits.kafka_attempts import clusters, unit_of
from tests.stands.kafka_target import Cluster

real = clusters()
pytestmark = pytest.mark.timeout(240)
KINDS = (("branch1", "mariadb"),)
OPEN, SHUT = ({"where": (("note", (word,)),)} for word in ("open", "shut"))


def began(real: Cluster, **topic: Any) -> RealUnit:
    """Rows 1 to 4 are in the topic, as far as the route lets them through."""
    unit = unit_of(real, topic=topic)
    unit.write([unit.source.put(row_of(unit, key)) for key in range(1, 5)])
    assert unit.apply().state == "ok"
    return unit


def row_of(unit: RealUnit, key: int) -> dict[str, Any]:
    return {**unit.source.row(key, None, 1), "note": "open" if key % 2 else "shut"}


def now(unit: RealUnit, **topic: Any) -> None:
    """The route is another one from here on, as after a reload."""
    (route,) = unit_of(unit.real, topic=topic).routes  # type: ignore[arg-type]
    unit.routes = (route,)
    unit.real.drop_connection(0)  # type: ignore[attr-defined]
    unit.real.tables.clear()
    unit.take_over()


def notified(unit: RealUnit) -> tuple[str, ...]:
    options = unit.routes[0].topic
    assert options is not None
    found: tuple[str, ...] = unit.real.session.find_outdated_options(unit.unit, options)  # type: ignore[attr-defined]
    return found


def ended(copy: CopyOf) -> None:
    while not copy.done:
        copy.emit()


def write(unit: RealUnit, key: int) -> None:
    unit.write([unit.source.put(row_of(unit, key))])
    assert unit.apply().state == "ok"


def test_another_filter_is_told_before_it_is_written_and_until_a_copy_of_all_rows_ends(real: Cluster) -> None:
    unit = began(real, **OPEN)
    assert notified(unit) == ()
    now(unit, **SHUT)
    assert notified(unit) == ("where",), "before a row is written"
    write(unit, 5)
    assert notified(unit) == ("where",), "behind the first one"
    some = CopyOf(unit.source, unit.topic, partial=True)
    some.all()
    assert unit.apply().state == "ok"
    assert notified(unit) == ("where",), "a part of the rows"
    whole = CopyOf(unit.source, unit.topic, id="copy-2")
    whole.begin()
    whole.emit()
    assert unit.apply().state == "ok"
    assert notified(unit) == ("where",), "the copy has not ended"
    ended(whole)
    assert unit.apply().state == "ok"
    assert notified(unit) == ()
    now(unit, **SHUT)
    write(unit, 6)
    assert notified(unit) == (), "and so it stays"


def test_what_changes_while_a_copy_runs_is_not_what_that_copy_has_written_all_of(real: Cluster) -> None:
    unit = began(real)
    now(unit, **OPEN)
    write(unit, 5)
    copy = CopyOf(unit.source, unit.topic)
    copy.begin()
    copy.emit()
    assert unit.apply().state == "ok"
    now(unit, **OPEN, masks=(("owner", "sha256"),))
    write(unit, 6)
    assert notified(unit) == ("masks", "where")
    ended(copy)
    assert unit.apply().state == "ok"
    assert notified(unit) == ("masks",), "its first rows have the owner's name"
    now(unit, **OPEN)
    write(unit, 7)
    assert notified(unit) == ("masks",), "rows of in between are hidden"
    CopyOf(unit.source, unit.topic, id="copy-2").all()
    assert unit.apply().state == "ok"
    assert notified(unit) == ()


def test_a_copy_that_begins_right_behind_the_change_is_enough(real: Cluster) -> None:
    unit = began(real, **OPEN)
    now(unit, **SHUT)
    CopyOf(unit.source, unit.topic).all()
    assert unit.apply().state == "ok"
    assert notified(unit) == ()


def test_rows_that_are_gone_are_not_as_they_were(real: Cluster) -> None:
    unit = began(real)
    now(unit, columns=("id", "owner", "note"))
    write(unit, 5)
    assert notified(unit) == ("columns",)
    unit.write([unit.source.truncate()])
    assert unit.apply().state == "ok"
    assert notified(unit) == ()


def config_of(real: Cluster, **topic: Any) -> Config:
    nowhere = {"type": "mariadb", "host": "h", "user": "u", "password": "", "tables": ["bank.*"]}
    feed = {"type": "kafka", "bootstrap": real.config.bootstrap, "prefix": real.schema}
    route = {"from": "bank.*", "to": real.schema + ".{table}", "kafka": topic}
    return Config.model_validate(
        {
            "kafka": {"bootstrap": "h:1", "prefix": "topic"},
            "sources": {"branch1": nowhere},
            "targets": {"feed": feed},
            "pipelines": {"p": {"sources": ["branch1"], "target": "feed", "routes": [route]}},
        }
    )


@pytest.mark.parametrize(
    ("route", "options", "reported"),
    [
        ({"where": {"note": ["open"]}}, OPEN, None),
        ({"where": {"note": ["shut"]}}, SHUT, "rows that the filter let in are missing"),
        ({"where": {"note": ["open"]}, "masks": {"owner": "x"}}, OPEN | {"masks": (("owner", "x"),)}, "values that should be hidden"),  # noqa: E501
    ],
)  # fmt: skip
def test_status_and_plan_say_it_with_the_remedy(
    route: dict[str, Any],
    options: dict[str, Any],
    reported: str | None,
    real: Cluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unit = began(real, **OPEN)
    config = config_of(real, **route)
    monkeypatch.setattr("rowlock.inspect.status.KafkaView", partial(TopicLists, [unit]))
    monkeypatch.setattr("rowlock.inspect.status.PlacementReader", UnplacedUnits)
    monkeypatch.setattr("rowlock.views.topic_settings.TopicSettings.read_ids", lambda *_: {})

    def shown() -> ApplyUnitStatus:
        (found,) = StatusReader(config).read_status().units
        return found

    lines = [
        line
        for line in plan_lines(build_run_plan([], [flow_of(unit, config, options)]))
        if line.startswith("target feed: topic")
    ]
    if reported is None:
        assert (shown().outdated, shown().reason) == ((), None)
        assert lines == []
        return
    for _ in range(2):
        status = shown()
        assert status.state == "current"
        assert status.outdated == tuple(sorted(set(options) - ({"where"} if "masks" in options else set())))
        assert reported in str(status.reason)
        assert str(status.remedy).startswith("rowlock copy bank.acct")
        now(unit, **options)
        write(unit, 5)
    assert [(reported in line, "rowlock copy bank.acct" in line) for line in lines] == [(True, True)]
    CopyOf(unit.source, unit.topic).all()
    assert unit.apply().state == "ok"
    assert (shown().outdated, shown().reason) == ((), None)


def flow_of(unit: RealUnit, config: Config, options: dict[str, Any]) -> stored.StoredFlow:
    """The source's table on its way, as `check --plan` reads what is stored of it."""
    routed = ResolvedRoute(unit.real.schema, "acct", topic=TopicOptions(kinds=KINDS, **options))
    flow = TableFlow("p", "branch1", unit.source.table, "feed", routed)
    session: Any = unit.real.session
    return stored._read_flow(config, flow, unit.unit.topic, session, known={unit.unit.topic}, layout=(1, ""))


def test_a_plan_says_what_would_stop_the_unit_and_makes_a_topic_only_where_none_is(real: Cluster) -> None:
    unit = began(real, **OPEN)
    config = config_of(real)
    for options, reported in (
        ({"format": "plain"}, "format was rowlock, now plain"),
        ({"key": ("owner",)}, "key was ['id'], now ['owner']"),
        ({"partitions": 3}, "has 1 partitions, but its route sets 3"),
        ({"columns": ("id", "nothing")}, "has no column nothing"),
    ):
        flow = flow_of(unit, config, OPEN | options)
        (topic,) = (found := build_run_plan([], [flow])).topics
        assert (topic.stops, reported in topic.why) == (True, True), topic
        assert found.targets == ()
        assert " will stop: " in plan_lines(found)[-2]
    routed = ResolvedRoute(unit.real.schema, "new", topic=TopicOptions(kinds=KINDS))
    new = TableFlow("p", "branch1", unit.source.table, "feed", routed)
    flow = stored._read_flow(config, new, unit.unit.topic, unit.real.session, known=set(), layout=(1, ""))
    assert [(each.table, each.creates) for each in build_run_plan([], [flow]).targets] == [
        (f"{real.schema}.new", True)
    ]
