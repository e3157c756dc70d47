"""A fleet of two versions: capture sends the event of removed rows only if every agent applies it
(docs/adr/0041-partition-retention.md). Leader, agent, capture process and barriers are the product's; the
wire between them is its messages."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from coordinator.core.agent import UseOldestAgents
from coordinator.core.leader.state import Drain, Tick
from coordinator.core.messages import Header, HeartbeatResponse, Hello, Sync
from producer.main import Orders
from schemas.units import CaptureCommand, OldestAgents
from schemas.versions import explain_unknown_removals, parse_version
from tests.kits.agent_core import EPOCH, LEASE, REV, Driver
from tests.kits.barriers import Stage, T
from tests.kits.leader_core import Cluster

DROP = "ALTER TABLE t DROP PARTITION p0"


class Fleet(Cluster):
    """A leader with agents of given versions, one agent's core, and the orders of its capture process."""

    def __init__(self, **versions: str) -> None:
        super().__init__()
        self.orders, self.driver = Orders(), Driver()
        self.driver.announce()
        for agent, version in versions.items():
            self.greet(agent)
            self.sync(agent, version)

    def greet(self, agent: str) -> None:
        self.up(Hello, agent, assignment=0, rev=0, incarnation=f"{agent}-1")

    def sync(self, agent: str, version: str) -> None:
        self.up(Sync, agent, sent=1.0, version=version)

    def answer(self, agent: str) -> HeartbeatResponse:
        self.beat(agent)
        return next(m for a, m in reversed(self.sent) if a == agent and isinstance(m, HeartbeatResponse))

    def send_versions_to_capture(self, agent: str) -> None:
        """Give the leader's answer to the agent, and what the agent passes on to its capture process."""
        answer = HeartbeatResponse(
            Header(REV, EPOCH), self.driver.now, LEASE, 1.0, oldest=self.answer(agent).oldest
        )
        for effect in self.driver.get(answer):
            if isinstance(effect, UseOldestAgents):
                self.orders.handle_line(msgspec.json.encode(CaptureCommand(oldest_agents=effect.oldest)))

    def drop_partition(self) -> tuple[list[str], str]:
        """Return the operations of the events that a DROP PARTITION leads to, and why it stops its table."""
        stage = Stage(old_agents=self.orders.explain_old_agents())
        error = stage.error(DROP, stage.reach) if stage.old_agents else None
        if error is None:
            assert stage.carry_out(DROP) == {}
        return [op for op, _ in stage.effects], str(error or "")


def test_removed_rows_are_sent_once_every_agent_applies_them() -> None:
    fleet = Fleet(a="0.3.0", b="0.2.0")
    fleet.send_versions_to_capture("a")
    events, why = fleet.drop_partition()
    assert events == []
    assert "bank.t lost rows by a statement" in why
    assert "(agent b of version 0.2.0 cannot apply the removal alone: upgrade every agent)" in why
    fleet.up(Hello, "b", assignment=0, rev=0, incarnation="b-2")
    fleet.sync("b", "0.3.0")
    fleet.send_versions_to_capture("a")
    assert fleet.drop_partition() == (["p"], "")


def test_the_stop_of_a_removal_names_the_copy_as_its_remedy() -> None:
    stage = Stage(old_agents="why")
    assert stage.carry_out(DROP) == {T: "rows-replaced"}
    (part,) = stage.error(DROP, stage.reach).parts
    assert part.remedy == "rowlock copy bank.t"


def test_an_old_agent_that_joins_later_counts_from_its_first_message() -> None:
    fleet = Fleet(a="0.3.0")
    fleet.send_versions_to_capture("a")
    assert fleet.drop_partition()[0] == ["p"]
    fleet.greet("b")
    fleet.sync("b", "0.1.0")
    fleet.send_versions_to_capture("a")
    assert fleet.drop_partition()[0] == []


def test_an_agent_that_has_not_reported_yet_changes_nothing_that_was_known() -> None:
    """A new leader hears the agents one after the other, and none while it cannot be reached."""
    fleet = Fleet(a="0.3.0")
    fleet.send_versions_to_capture("a")
    fleet.greet("b")
    assert fleet.answer("a").oldest is None
    fleet.send_versions_to_capture("a")
    assert fleet.drop_partition()[0] == ["p"]


def test_an_agent_that_is_lost_or_drained_counts_until_its_lease_is_over() -> None:
    fleet = Fleet(a="0.3.0", b="0.2.0")
    fleet.do(Drain("b"))
    assert fleet.answer("a").oldest == OldestAgents("0.2.0", ("b",))
    fleet.now += fleet.state.config.silence
    fleet.beat("a")
    fleet.do(Tick())
    assert fleet.answer("a").oldest == OldestAgents("0.3.0", ("a",))


def test_capture_that_has_heard_of_no_version_sends_no_removed_rows() -> None:
    """Its leader is of an earlier version, or has only just begun."""
    events, why = Fleet().drop_partition()
    assert events == []
    assert "(the versions of the agents are not known yet)" in why


def test_capture_learns_the_oldest_agents_with_its_start() -> None:
    orders = Orders()
    orders.handle_line(
        msgspec.json.encode(CaptureCommand(start=True, oldest_agents=OldestAgents("0.3.1", ("a",))))
    )
    assert (orders.go.is_set(), orders.stop.is_set(), orders.explain_old_agents()) == (True, False, "")
    orders.handle_line(msgspec.json.encode(CaptureCommand(oldest_agents=OldestAgents("", ("a", "b")))))
    assert orders.explain_old_agents().startswith("agents a, b of a version before 0.1.0 cannot apply")


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.3.0.dev0", (0, 3)), ("0.10.2", (0, 10)), ("1.0", (1, 0)), ("", (0, 0)), ("?", (0, 0))],
)
def test_versions_are_compared_by_their_numbers(version: str, expected: Any) -> None:
    assert parse_version(version) == expected
    assert bool(explain_unknown_removals(OldestAgents(version, ("a",)))) == (expected < (0, 3))
