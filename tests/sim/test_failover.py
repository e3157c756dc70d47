"""Capture across failovers is right under many seeds; without any one of its rules it goes wrong within a
bounded number of seeds."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import pytest

from producer.sources.binlog.resume_search import GtidLogSearch, ResumePlace
from producer.sources.changes import Evidence
from producer.start import server_switch, startup
from producer.start.server_switch import ServerSwitcher
from tests.sim.failover import FailoverSimulation, run_failovers
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


@pytest.mark.timeout(3600)
def test_every_seed_ends_with_the_topics_equal_to_the_new_primary() -> None:
    assert sum(over_seeds(run_failovers, range(SEEDS))) == SEEDS


@pytest.mark.parametrize("rule", TWINS)
def test_without_the_rule_a_failover_goes_wrong(rule: str) -> None:
    where, name, instead = TWINS[rule]
    with mock.patch.object(where, name, instead):
        for seed in range(LIMIT):
            try:
                FailoverSimulation(seed).run()
            except (Wrong, AssertionError, ValueError, KeyError):
                return
    pytest.fail(f"{LIMIT} seeds end right without the rule")
