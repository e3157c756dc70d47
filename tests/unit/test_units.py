"""One vocabulary of a unit's life: its phases, its commands and its reports, from the coordinator to the
process that works."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from consumer.reporting.protocol import decode_command, encode_unit_event
from consumer.units.unit import (
    Aborting,
    Applying,
    AwaitingStart,
    Fencing,
    LocalState,
    Preparing,
    Stopped,
    TakingOver,
)
from coordinator.core.replication_table import ReplicaPhase
from schemas.units import (
    Prepared,
    PrepareProgress,
    UnitCommand,
    UnitLine,
    UnitOperation,
    UnitPhase,
    UnitProgress,
    UnitProgressed,
    WorkerEnded,
    WorkerEvent,
)

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("producer", "consumer", "coordinator", "rowlock", "schemas")
MARK = UnitProgress(5, 9, (0, 1, 2, -1))
COMMANDS = {
    '{"do":"prepare","unit":"apply/p/t","assignment":7,"mark":[5,9,[0,1,2,-1]]}': UnitCommand(
        UnitOperation.PREPARE, "apply/p/t", 7, MARK
    ),
    '{"do":"start","unit":"apply/p/t","assignment":7,"mark":null}': UnitCommand(
        UnitOperation.START, "apply/p/t", 7
    ),
    '{"do":"remove","unit":"apply/p/t","assignment":7,"mark":null}': UnitCommand(
        UnitOperation.REMOVE, "apply/p/t", 7
    ),
}
EVENTS = {
    '{"kind":"unit","unit":"u","event":{"event":"prepared","assignment":7}}': Prepared(7),
    '{"kind":"unit","unit":"u","event":{"event":"getting on","assignment":7}}': PrepareProgress(7),
    '{"kind":"unit","unit":"u","event":{"event":"progressed","assignment":7,"mark":[5,9,[0,1,2,-1]],"rows_per_s":3,'
    '"error":"a person"}}': UnitProgressed(7, MARK, 3, "a person"),
    '{"kind":"unit","unit":"u","event":{"event":"ended","assignment":7,"mark":null,"error":null}}': WorkerEnded(  # noqa: E501
        7
    ),
}
#: States of a unit in the apply process → its phase.
LOCAL_STATES: dict[type[LocalState], str] = {
    Preparing: "preparing",
    AwaitingStart: "prepared",
    TakingOver: "replicating",
    Applying: "replicating",
    Stopped: "replicating",
    Aborting: "stopping",
    Fencing: "stopping",
}
#: Classes with words of a unit's phases → why they are not `UnitPhase` itself.
SAYS_MORE = {
    "UnitPhase": "it is the vocabulary",
    "ReplicaPhase": "of a replica: what its agent reports, or that the agent is gone",
    "SetState": "of all replicas of a unit together",
    "Primary": "of the primary among them, as rules ask for it",
    "Secondary": "of the secondary among them, as rules ask for it",
    "Liveness": "of an agent",
    "ChildPhase": "of a process of `rowlock run`",
}


@pytest.mark.parametrize("line", COMMANDS)
def test_what_a_worker_is_told_is_one_line(line: str) -> None:
    assert decode_command(line.encode()) == COMMANDS[line]
    assert msgspec.json.encode(COMMANDS[line]).decode() == line


@pytest.mark.parametrize("line", EVENTS)
def test_what_a_worker_says_is_one_line_and_arrives_as_it_was_said(line: str) -> None:
    event: WorkerEvent = EVENTS[line]
    assert encode_unit_event("u", event) == line
    assert msgspec.convert(msgspec.json.decode(line), UnitLine) == UnitLine("u", event)


@pytest.mark.parametrize(
    "line", ['{"do":"open","unit":"u","assignment":7}', '{"do":"start","unit":"u","epoch":7}', "[]", "start"]
)
def test_other_words_are_refused(line: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_command(line.encode())


def test_what_says_more_uses_the_same_words() -> None:
    words = {phase.value for phase in UnitPhase}
    assert {seen.value for seen in ReplicaPhase} == words | {"gone"}
    assert set(LOCAL_STATES) == set(get_args(LocalState))
    assert set(LOCAL_STATES.values()) == words - {"absent", "stopped"}


def test_there_is_no_other_set_of_phases() -> None:
    words = {phase.value for phase in UnitPhase} | {"opening", "ready", "taking", "running", "waiting"}
    found = {
        node.name
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and any("Enum" in ast.unparse(base) for base in node.bases)
        if words & {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
    }
    assert found == set(SAYS_MORE)


def test_the_table_of_words_has_all_of_them() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    table = page.split("## Words")[1].split("\n## ")[0]
    events = {each.__struct_config__.tag for each in (Prepared, PrepareProgress, UnitProgressed, WorkerEnded)}
    reported = {each.value for each in (*UnitPhase, *UnitOperation)} | events
    reported |= {each.__name__ for each in LOCAL_STATES}
    assert {word for word in reported if f"`{word}`" not in table} == set()
