"""Capture across failovers is right under many seeds; without any one of its rules it goes wrong within a
bounded number of seeds."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import pytest

from producer.sources.binlog.resume_search import GtidLogSearch, ResumePlace, _Region
from producer.sources.changes import Evidence
from producer.sources.mariadb.mariadb_gtids import MariadbGtidSet
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.start import server_switch, startup
from producer.start.server_switch import ServerSwitcher
from tests.sim.failover import FailoverSimulation, run_failovers
from tests.sim.mariadb_failover import MariadbFailoverSimulation, run_mariadb_failovers
from tests.sim.seeds import over_seeds
from tests.sim.truth import Wrong

SEEDS = int(os.environ.get("ROWLOCK_SIM_SEEDS", "200"))
LIMIT = 200


def _at_the_end(self: GtidLogSearch, *_: object) -> ResumePlace:
    return ResumePlace(next(iter(self._files())).name, self._end[1], Evidence((), None), ())


def _claims_nothing(self: ServerSwitcher, record: Any, topics: Any, found: Any) -> None:
    for name, topic_name in topics.items():
        self.captured.get_topic(name).continue_after(found[topic_name].highest, found[topic_name].end)


#: Rule → what is changed in the product: (where, name, what replaces it).
TWINS: dict[str, tuple[object, str, object]] = {
    "what the topics have is not published again": (startup, "read_covered_rows", lambda *_: {}),
    "what the new server lacks stops its tables": (ServerSwitcher, "_find_lacking", lambda *_: []),
    "what precedes the place and is not captured stops its tables": (
        server_switch, "_find_uncaptured", lambda *_: [],
    ),
    "the place is that of the last captured transaction": (GtidLogSearch, "find_resume_place", _at_the_end),
    "the topics are claimed before they are read": (ServerSwitcher, "_claim_topics", _claims_nothing),
}  # fmt: skip

_find_place = _Region.find_place


def _after_the_last(self: _Region, missed: GtidSet) -> ResumePlace:
    self.open.clear()
    return _find_place(self, missed)


def _all_as_errant(self: _Region, missed: GtidSet) -> ResumePlace:
    for each in self.open.values():
        self.passed += [(step.number, passed) for step, passed in each if step.number < self.end.number]
    self.open.clear()
    return _find_place(self, missed)


def _misses_nothing(self: _Region, _missed: GtidSet) -> ResumePlace:
    return _find_place(self, MariadbGtidSet())


#: The rules that MariaDB adds.
MARIADB_TWINS: dict[str, tuple[object, str, object]] = {
    "what a domain brings before captured ones of another domain is published": (
        _Region, "find_place", _after_the_last,
    ),
    "it is not an errant transaction": (_Region, "find_place", _all_as_errant),
    "what the log repeats of other domains is not published again": (
        ServerSwitcher, "_lower_anchors", lambda _self, record, *_: dict(record.anchors),
    ),
    "what the log passes over stops its tables": (_Region, "find_place", _misses_nothing),
}  # fmt: skip

SHOWN_ONCE = {"the topics are claimed before they are read"}
"""Rules that do not depend on the make of server, and fail in few seeds."""


@pytest.mark.timeout(3600)
def test_every_seed_ends_with_the_topics_equal_to_the_new_primary() -> None:
    assert sum(over_seeds(run_failovers, range(SEEDS))) == SEEDS


@pytest.mark.timeout(3600)
def test_every_seed_of_two_domains_ends_with_the_topics_equal_to_the_new_primary() -> None:
    assert sum(over_seeds(run_mariadb_failovers, range(SEEDS))) == SEEDS


@pytest.mark.parametrize("rule", TWINS)
def test_without_the_rule_a_failover_goes_wrong(rule: str) -> None:
    judge_twin(FailoverSimulation, *TWINS[rule])


@pytest.mark.parametrize("rule", [*sorted(TWINS.keys() - SHOWN_ONCE), *MARIADB_TWINS])
def test_without_the_rule_a_failover_of_two_domains_goes_wrong(rule: str) -> None:
    judge_twin(MariadbFailoverSimulation, *{**TWINS, **MARIADB_TWINS}[rule], limit=5 * LIMIT)


def judge_twin(
    world: type[FailoverSimulation], where: object, name: str, instead: object, limit: int = LIMIT
) -> None:
    with mock.patch.object(where, name, instead):
        for seed in range(limit):
            try:
                world(seed).run()
            except (Wrong, AssertionError, ValueError, KeyError):
                return
    pytest.fail(f"{limit} seeds end right without the rule")
