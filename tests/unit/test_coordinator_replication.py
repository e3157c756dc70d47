"""The replication set: every cell of its table written down again by hand, commands, recovery, and any order
of events."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordinator.core.replication import (
    AgentLost,
    Assign,
    Cancel,
    ImpossibleReport,
    Instruct,
    PersistReplicas,
    Remove,
    Replica,
    ReplicaPersisted,
    ReplicaReport,
    ReplicationSet,
    SetInput,
    SetOutput,
    SetRefusedError,
    list_cells,
    restore_set,
    step_set,
    summarize_composition,
)
from coordinator.core.replication_table import (
    CELLS,
    RULES,
    SETTLE,
    ReplicaAction,
    ReplicaPhase,
    Role,
    Rule,
    SetState,
)
from schemas.units import UnitOperation, UnitPhase
from tests.kits.invariants import check_set_invariants
from tools.docs.diagram import fill_page, mermaid

ROLES = {"P": Role.PRIMARY, "S": Role.SECONDARY, "U": Role.UNDETERMINED}


def build(state: str, text: str) -> ReplicationSet:
    """`build("commit", "A1P:replicating B2S:prepared")`: agent, epoch, role, last report ("-": none)."""
    replicas = []
    for word in text.split():
        who, _, seen = word.partition(":")
        replicas.append(
            Replica(who[0], 1, int(who[1]), ROLES[who[2]], True, None if seen == "-" else ReplicaPhase(seen))
        )
    return ReplicationSet("u", SetState(state), tuple(replicas))


def shape(current: ReplicationSet) -> str:
    names = {role: letter for letter, role in ROLES.items()}
    return " ".join(
        [current.state.value, *(f"{r.agent}{r.assignment}{names[r.role]}" for r in current.replicas)]
    )


def reported(out: tuple[SetOutput, ...]) -> str:
    words = []
    for one in out:
        match one:
            case Instruct(op, agent, _, assignment):
                words.append(f"{op.value}>{agent}{assignment}")
            case ImpossibleReport():
                words.append("alarm")
            case PersistReplicas(assignment):
                words.append(f"persist{assignment}")
    return " ".join(words)


def event_of(agent: str, assignment: int, seen: str) -> SetInput:
    if seen == "gone":
        return AgentLost(agent, 1)
    return ReplicaReport(agent, 1, 0 if seen == "absent" else assignment, UnitPhase(seen))


# context → reporter → what it says → the set after it | what is said
EXPECTED: dict[tuple[str, str], dict[str, dict[str, str]]] = {
    ("recovering", "A1U:-"): {
        "A1": {
            "absent": "absent|",
            "preparing": "prepare A1S|",
            "prepared": "commit A1P|start>A1",
            "replicating": "replicating A1P|",
            "stopping": "removing A1U|",
            "stopped": "absent|forget>A1",
            "gone": "absent|",
        }
    },
    ("prepare", "A1S:-"): {
        "A1": {
            "absent": "prepare A1S|prepare>A1",
            "preparing": "prepare A1S|",
            "prepared": "commit A1P|start>A1",
            "replicating": "removing A1U|alarm remove>A1",
            "stopping": "removing A1U|",
            "stopped": "absent|forget>A1",
            "gone": "absent|",
        }
    },
    ("prepare", "A1S:preparing"): {"A1": {"absent": "absent|"}},
    ("prepare", "A1P:replicating B2S:preparing"): {
        "A1": {
            "absent": "prepare B2S|",
            "preparing": "prepare A1U B2S|alarm remove>A1",
            "prepared": "prepare A1U B2S|alarm remove>A1",
            "replicating": "prepare A1P B2S|",
            "stopping": "prepare A1U B2S|",
            "stopped": "prepare B2S|forget>A1",
            "gone": "prepare B2S|",
        },
        "B2": {
            "absent": "replicating A1P|",
            "preparing": "prepare A1P B2S|",
            "prepared": "commit A1P B2S|remove>A1",
            "replicating": "replicating A1P B2U|alarm remove>B2",
            "stopping": "replicating A1P B2U|",
            "stopped": "replicating A1P|forget>B2",
            "gone": "replicating A1P|",
        },
    },
    ("prepare", "A1U:stopping B2S:preparing"): {
        "A1": {
            "absent": "prepare B2S|",
            "preparing": "prepare A1U B2S|remove>A1",
            "prepared": "prepare A1U B2S|remove>A1",
            "replicating": "prepare A1U B2S|remove>A1",
            "stopping": "prepare A1U B2S|",
            "stopped": "prepare B2S|forget>A1",
            "gone": "prepare B2S|",
        },
        "B2": {
            "prepared": "commit A1U B2S|",
            "gone": "removing A1U|",
            "stopped": "removing A1U|forget>B2",
        },
    },
    ("commit", "A1P:replicating B2S:prepared"): {
        "A1": {
            "absent": "commit B2P|start>B2",
            "preparing": "commit A1U B2S|alarm remove>A1",
            "prepared": "commit A1U B2S|alarm remove>A1",
            "replicating": "commit A1P B2S|remove>A1",
            "stopping": "commit A1U B2S|",
            "stopped": "commit B2P|forget>A1 start>B2",
            "gone": "commit B2P|start>B2",
        },
        "B2": {
            "absent": "replicating A1P|",
            "preparing": "replicating A1P B2U|alarm remove>B2",
            "prepared": "commit A1P B2S|remove>A1",
            "replicating": "replicating A1P B2U|alarm remove>B2",
            "stopping": "replicating A1P B2U|",
            "stopped": "replicating A1P|forget>B2",
            "gone": "replicating A1P|",
        },
    },
    ("commit", "A1U:stopping B2S:prepared"): {
        "A1": {
            "absent": "commit B2P|start>B2",
            "preparing": "commit A1U B2S|remove>A1",
            "prepared": "commit A1U B2S|remove>A1",
            "replicating": "commit A1U B2S|remove>A1",
            "stopping": "commit A1U B2S|",
            "stopped": "commit B2P|forget>A1 start>B2",
            "gone": "commit B2P|start>B2",
        },
        "B2": {"prepared": "commit A1U B2S|", "gone": "removing A1U|", "stopping": "removing A1U B2U|"},
    },
    ("commit", "B2P:prepared"): {
        "B2": {
            "absent": "absent|",
            "preparing": "removing B2U|alarm remove>B2",
            "prepared": "commit B2P|start>B2",
            "replicating": "replicating B2P|",
            "stopping": "removing B2U|",
            "stopped": "absent|forget>B2",
            "gone": "absent|",
        }
    },
    ("replicating", "A1P:replicating"): {
        "A1": {
            "absent": "absent|",
            "preparing": "removing A1U|alarm remove>A1",
            "prepared": "removing A1U|alarm remove>A1",
            "replicating": "replicating A1P|",
            "stopping": "removing A1U|",
            "stopped": "absent|forget>A1",
            "gone": "absent|",
        }
    },
    ("replicating", "A1U:stopping B2P:replicating"): {
        "A1": {
            "absent": "replicating B2P|",
            "preparing": "replicating A1U B2P|remove>A1",
            "prepared": "replicating A1U B2P|remove>A1",
            "replicating": "replicating A1U B2P|remove>A1",
            "stopping": "replicating A1U B2P|",
            "stopped": "replicating B2P|forget>A1",
            "gone": "replicating B2P|",
        },
        "B2": {"stopping": "removing A1U B2U|", "gone": "removing A1U|"},
    },
    ("removing", "A1U:replicating"): {
        "A1": {
            "absent": "absent|",
            "preparing": "removing A1U|remove>A1",
            "prepared": "removing A1U|remove>A1",
            "replicating": "removing A1U|remove>A1",
            "stopping": "removing A1U|",
            "stopped": "absent|forget>A1",
            "gone": "absent|",
        }
    },
    ("removing", "A1U:stopping B2U:replicating"): {
        "A1": {"gone": "removing B2U|"},
        "B2": {"absent": "removing A1U|"},
    },
}

CASES = [
    (state, text, reporter, seen, expected)
    for (state, text), by_reporter in EXPECTED.items()
    for reporter, by_seen in by_reporter.items()
    for seen, expected in by_seen.items()
]


@pytest.mark.parametrize(("state", "text", "reporter", "seen", "expected"), CASES)
def test_each_cell_does_what_the_table_by_hand_says(
    state: str, text: str, reporter: str, seen: str, expected: str
) -> None:
    before = build(state, text)
    check_set_invariants(before)
    after, out = step_set(before, event_of(reporter[0], int(reporter[1]), seen))
    check_set_invariants(after)
    assert f"{shape(after)}|{reported(out)}" == expected


def test_the_table_by_hand_goes_through_every_cell() -> None:
    covered = {
        cell
        for state, text, reporter, seen, _ in CASES
        for cell in list_cells(build(state, text), event_of(reporter[0], int(reporter[1]), seen))
    }
    assert covered == set(CELLS)


def test_every_role_that_a_state_can_hold_has_every_report() -> None:
    held = {(state, role) for state, role, _ in CELLS}
    assert {(s, r, seen) for (s, r), seen in product(held, ReplicaPhase)} == set(CELLS)


def test_every_composition_has_one_rule_and_every_rule_is_used() -> None:
    assert {id(rule) for rule in SETTLE.values()} == {id(rule) for rule in RULES}


def test_every_rule_is_reached_by_the_table_or_by_recovery() -> None:
    def rules_of(current: ReplicationSet) -> set[Rule]:
        return {SETTLE[summarize_composition(current)]}

    seen: set[Rule] = set()
    for state, text, reporter, what, _ in CASES:
        before = build(state, text)
        after, _ = step_set(before, event_of(reporter[0], int(reporter[1]), what))
        seen |= rules_of(before) | rules_of(after)
    passing = [rule for rule in RULES if rule not in seen]
    # passed through within a step: they lead on to another state, or promote
    assert all(
        rule.next is not rule.state or rule.act is ReplicaAction.PROMOTE
        for rule in passing
        if rule.leaving is not None
    )


def recover(*reports: tuple[str, int, str], record: str) -> tuple[str, str]:
    current = build("recovering", record)
    everything: list[str] = []
    for agent, assignment, seen in reports:
        current, out = step_set(current, event_of(agent, assignment, seen))
        check_set_invariants(current)
        everything.append(reported(out))
    return shape(current), " ".join(word for word in everything if word)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([("A", 1, "replicating")], ("recovering A1U B2U", "")),
        ([("A", 1, "replicating"), ("B", 2, "preparing")], ("prepare A1P B2S", "")),
        ([("A", 1, "replicating"), ("B", 2, "prepared")], ("commit A1P B2S", "remove>A1")),
        ([("B", 2, "prepared"), ("A", 1, "stopping")], ("commit A1U B2S", "")),  # tiflow#6538
        ([("B", 2, "prepared"), ("A", 1, "stopped")], ("commit B2P", "forget>A1 start>B2")),
        ([("B", 2, "replicating"), ("A", 1, "replicating")], ("replicating A1U B2P", "")),
        ([("A", 1, "absent"), ("B", 2, "absent")], ("absent", "")),
        ([("A", 1, "gone"), ("B", 2, "stopping")], ("removing B2U", "")),
        ([("A", 1, "prepared"), ("B", 2, "prepared")], ("commit A1U B2S", "")),  # two secondaries (B8)
    ],
)
def test_a_new_owner_rebuilds_the_set_from_reports(
    reports: list[tuple[str, int, str]], expected: tuple[str, str]
) -> None:
    assert recover(*reports, record="A1U:- B2U:-") == expected


def test_a_restored_set_trusts_nothing_of_its_record_but_who_can_hold_it() -> None:
    record = build("commit", "A1P:replicating B2S:prepared").replicas
    current = restore_set("u", record)
    assert shape(current) == "recovering A1U B2U"
    assert all(r.seen is None and r.durable for r in current.replicas)
    assert restore_set("u", ()).state is SetState.ABSENT


def test_nobody_is_told_before_the_epoch_is_durable() -> None:
    current, out = step_set(ReplicationSet("u"), Assign("A", 1, 7))
    assert reported(out) == "persist7"
    current, out = step_set(current, ReplicaReport("A", 1, 0, UnitPhase.ABSENT))
    assert (shape(current), reported(out)) == ("prepare A7S", "")
    current, out = step_set(current, ReplicaPersisted(6))
    assert reported(out) == ""
    current, out = step_set(current, ReplicaPersisted(7))
    assert reported(out) == "prepare>A7"


def test_an_assignment_removed_before_it_was_durable_is_never_dispatched() -> None:
    current, _ = step_set(ReplicationSet("u"), Assign("A", 1, 7))
    current, out = step_set(current, Remove())
    assert (shape(current), reported(out)) == ("absent", "")
    assert step_set(current, ReplicaPersisted(7)) == (current, ())


def test_a_cancelled_move_leaves_the_primary_alone() -> None:
    current, out = step_set(build("prepare", "A1P:replicating B2S:preparing"), Cancel())
    assert (shape(current), reported(out)) == ("replicating A1P B2U", "remove>B2")
    with pytest.raises(SetRefusedError):
        step_set(build("commit", "A1P:replicating B2S:prepared"), Cancel())


@pytest.mark.parametrize(
    ("state", "text"),
    [("prepare", "A1S:preparing"), ("commit", "A1P:replicating B2S:prepared"), ("removing", "A1U:stopping")],
)
def test_assignments_are_refused_while_another_is_under_way(state: str, text: str) -> None:
    with pytest.raises(SetRefusedError):
        step_set(build(state, text), Assign("C", 1, 9))


def test_a_move_to_the_agent_that_has_it_is_refused() -> None:
    with pytest.raises(SetRefusedError):
        step_set(build("replicating", "A1P:replicating"), Assign("A", 1, 9))


def test_remove_tells_every_replica_and_waits_for_each() -> None:
    current, out = step_set(build("commit", "A1P:replicating B2S:prepared"), Remove())
    assert (shape(current), reported(out)) == ("removing A1U B2U", "remove>A1 remove>B2")


@pytest.mark.parametrize("state", [s for s in UnitPhase if s is not UnitPhase.ABSENT])
def test_an_orphan_is_told_to_stop_whatever_the_set_is(state: UnitPhase) -> None:
    for kind, text in [("absent", ""), *EXPECTED]:
        before = build(kind, text)
        after, out = step_set(before, ReplicaReport("Z", 1, 1, state))
        assert (after, reported(out)) == (before, "forget>Z1" if state is UnitPhase.STOPPED else "remove>Z1")


def test_another_epoch_on_the_same_agent_says_that_this_one_is_not_there() -> None:
    current, out = step_set(
        build("replicating", "A3P:replicating"), ReplicaReport("A", 1, 2, UnitPhase.REPLICATING)
    )
    assert (shape(current), reported(out)) == ("absent", "remove>A2")


def test_a_later_incarnation_ends_the_earlier_ones_replicas() -> None:
    current, out = step_set(
        build("replicating", "A1P:replicating"), ReplicaReport("A", 2, 0, UnitPhase.ABSENT)
    )
    assert (shape(current), reported(out)) == ("absent", "")
    before = build("replicating", "A1P:replicating")
    assert step_set(before, ReplicaReport("A", 0, 0, UnitPhase.ABSENT))[0] == before


AGENTS = st.sampled_from(["A", "B", "C"])


class AnyOrder(RuleBasedStateMachine):
    """Any event at any time, also ones that no correct agent or owner sends: the invariants hold, no
    instruction is early."""

    def __init__(self) -> None:
        super().__init__()
        self.current = ReplicationSet("u")
        self.assignment = 0
        self.durable: set[int] = set()
        self.pending: set[int] = set()
        self.started: dict[int, set[str]] = {}

    def feed(self, event: SetInput) -> None:
        before = self.current
        self.current, out = step_set(before, event)
        for one in out:
            match one:
                case PersistReplicas(assignment, replicas):
                    assert {r.assignment for r in replicas} >= {r.assignment for r in before.replicas}
                    self.pending.add(assignment)
                case Instruct(UnitOperation.PREPARE | UnitOperation.START, _, _, assignment):
                    assert assignment in self.durable
                case _:
                    pass
            if isinstance(one, Instruct) and one.op is UnitOperation.START:
                assert [r.assignment for r in self.current.replicas] == [one.assignment], (
                    "started beside another replica"
                )

    @rule(agent=AGENTS)
    def assign(self, agent: str) -> None:
        self.assignment += 1
        try:
            self.feed(Assign(agent, 1, self.assignment))
        except SetRefusedError:
            self.assignment -= 1

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def persisted(self, data: st.DataObject) -> None:
        assignment = data.draw(st.sampled_from(sorted(self.pending)))
        self.pending.discard(assignment)
        self.durable.add(assignment)
        self.feed(ReplicaPersisted(assignment))

    @precondition(lambda self: self.durable)
    @rule(data=st.data(), state=st.sampled_from(UnitPhase), agent_epoch=st.integers(0, 2))
    def report(self, data: st.DataObject, state: UnitPhase, agent_epoch: int) -> None:
        agent = data.draw(AGENTS)
        assignment = 0 if state is UnitPhase.ABSENT else data.draw(st.sampled_from(sorted(self.durable)))
        self.feed(ReplicaReport(agent, agent_epoch, assignment, state))

    @rule(data=st.data(), state=st.sampled_from(UnitPhase))
    def report_of_a_replica(self, data: st.DataObject, state: UnitPhase) -> None:
        durable = [r for r in self.current.replicas if r.durable]
        if durable:
            replica = data.draw(st.sampled_from(durable))
            self.feed(ReplicaReport(replica.agent, replica.agent_epoch, replica.assignment, state))

    @rule(agent=AGENTS)
    def missing(self, agent: str) -> None:
        self.feed(AgentLost(agent, 1))

    @rule()
    def remove(self) -> None:
        self.feed(Remove())

    @rule()
    def cancel(self) -> None:
        try:
            self.feed(Cancel())
        except SetRefusedError:
            assert self.current.state is not SetState.PREPARE

    @rule()
    def owner_changes(self) -> None:
        known = tuple(r for r in self.current.replicas if r.durable)
        self.current = restore_set("u", known)
        self.pending.clear()

    @invariant()
    def holds(self) -> None:
        check_set_invariants(self.current)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_the_documentation_shows_the_tables_that_run() -> None:
    page = (Path(__file__).parents[2] / "docs/explanation/coordination.md").read_text(encoding="utf-8")
    assert fill_page(page) == page, "→ python -m tools.docs.diagram docs/explanation/coordination.md"
    assert all(f"{rule.state.value} --> " in mermaid() for rule in RULES)
