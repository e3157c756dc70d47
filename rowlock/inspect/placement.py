"""The placement of units as the leading coordinator knows it: whether each runs, and why not. Used by
`status`.

The control topic names the leader and its REST address (`rowlock run` may use any port); the units are
requested there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException

from coordinator.control.topic import build_control_topic_name
from rowlock.coordinator.control_view import ControlView, find_leader
from rowlock.coordinator.leader_client import FoundLeader, LeaderClient
from rowlock.errors import CommandError, KafkaUnreachableError, NoListenerError
from rowlock.inspect.observed.slots import AgentSlotReport, read_agent_slots
from rowlock.inspect.observed.versions import ProcessVersion, process_versions
from schemas.config.model import Config

PLACEMENT_TIMEOUT_S = 2.0
"""Seconds that an election, or a leader that has just ended, may take before no coordinator counts as
leading.
"""

PlacementRow = Mapping[str, Any]
SEE_CHECK = "`rowlock check` shows the reason"
START_AGAIN = (
    f"start `rowlock run`, or `rowlock coordinator` and `rowlock agent`; if it refuses to start, {SEE_CHECK}"
)
"""The remedy while nothing runs. A start that was refused has recorded nothing."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of units."""

    units: Mapping[str, PlacementRow] = field(default_factory=dict)
    """By unit: its row as REST returns it."""
    problem: str = ""
    """Why nothing is known, or nothing runs; "": a leader has answered."""
    known: bool = True
    """Whether the problem means that nothing runs. A leader that cannot be reached from here may run all
    units.
    """
    versions: tuple[ProcessVersion, ...] = ()
    """The versions of the leader and its agents."""
    slots: tuple[AgentSlotReport, ...] = ()
    """The slots of agents in Spark, as far as they are known."""
    rest: str = ""
    """The REST address of the leader that has answered; "": none has."""


@dataclass(frozen=True, slots=True)
class LeaderAnswers:
    """A leader's answers about itself, its agents and its units: rows as REST returns them."""

    units: Sequence[PlacementRow]
    leader: PlacementRow = field(default_factory=dict)
    agents: Sequence[PlacementRow] = ()


class PlacementReader:
    """Reads the placement repeatedly (`--watch`), and keeps what it has read of the control topic."""

    def __init__(self, config: Config, ask: Callable[[str], LeaderAnswers] | None = None) -> None:
        """`ask(rest)` returns the answers of the leader at that "host:port"; raises CommandError."""
        self._config = config
        self._topic = ControlView(config.kafka)
        self._ask = ask or self._fetch_answers
        self._leader: tuple[str, LeaderClient] | None = None

    def close(self) -> None:
        self._topic.close()
        self._close_leader()

    def read_placement(self) -> Placement:
        try:
            fold = self._topic.read_topic()
        except KafkaUnreachableError as error:
            return Placement(problem=f"the control topic cannot be read: {error}", known=False)
        except KafkaException as error:
            seen = f"the control topic cannot be read: {error.args[0].str()}"
            return Placement(problem=seen, known=False)
        candidate = find_leader(fold)
        if self._topic.is_missing:
            return Placement(problem=f"{_explain_missing_topic(self._config)}: {START_AGAIN}")
        if candidate is None:
            return Placement(problem=f"nothing runs: no coordinator leads: {START_AGAIN}")
        try:
            answers = self._ask(candidate.rest)
        except CommandError as error:
            seen = f"coordinator {candidate.name}, the last to lead, does not answer at {candidate.rest}"
            is_refused = isinstance(error, NoListenerError)
            why = (
                f"nothing runs: {seen}: {START_AGAIN}"
                if is_refused
                else f"{seen} ({error}): let this machine reach it"
            )
            return Placement(problem=why, known=is_refused)
        versions = process_versions(candidate.name, answers.leader, answers.agents)
        units = {str(row["unit"]): row for row in answers.units}
        slots = read_agent_slots(answers.agents)
        return Placement(units, versions=versions, slots=slots, rest=candidate.rest)

    def _fetch_answers(self, rest: str) -> LeaderAnswers:
        if self._leader is None or self._leader[0] != rest:
            self._close_leader()
            coordination, prefix = self._config.coordination, self._config.kafka.prefix
            client = LeaderClient(
                coordination, prefix=prefix, patience_s=PLACEMENT_TIMEOUT_S, at=rest, find=FoundLeader
            )
            self._leader = rest, client
        client = self._leader[1]
        try:
            units = client.list_units({})
            return LeaderAnswers(units, client.get("/v1/leader"), client.get("/v1/agents")["agents"])
        except CommandError:
            self._close_leader()
            raise

    def _close_leader(self) -> None:
        if self._leader is not None:
            self._leader[1].close()
            self._leader = None


def _explain_missing_topic(config: Config) -> str:
    """Return why nothing can run with a Kafka that has no control topic."""
    return (
        f"nothing runs: Kafka at {config.kafka.bootstrap} has no control topic "
        f"{build_control_topic_name(config.kafka)}, so nothing has run with it yet or its data were removed"
    )
