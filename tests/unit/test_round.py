"""A round of the owner: one write for what it decided, then what it says; and who drives it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.batch import BatchSystem
from coordinator.core.messages import Header, Superseded, Up
from coordinator.core.records import CounterRecord, DurableRecord, PausedRecord
from coordinator.server.agent_machine import AgentMachine
from coordinator.server.batch_handler import BatchHandler
from coordinator.server.leader_round import LeaderRound


def counter(epoch: int) -> tuple[str, CounterRecord]:
    return "counter", CounterRecord(epoch)


def message(number: int) -> Superseded:
    return Superseded(Header(1, 1, 0, number))


def test_what_a_round_decided_is_one_write_with_the_last_value_of_each_key() -> None:
    this = LeaderRound()
    assert not this
    this.add_records(1, (counter(7), ("paused/u", PausedRecord("u"))))
    this.add_records(2, (counter(8), ("paused/u", None)))
    assert this
    assert this.take_write() == (2, (counter(8), ("paused/u", None)))
    assert not this
    assert this.take_write() is None


def test_each_decision_hears_of_its_own_write_and_of_none_behind_it() -> None:
    this = LeaderRound()
    for tokens in ((1, 2), (3,), (4, 5)):
        for token in tokens:
            this.add_records(token, (counter(token),))
        this.take_write()
    assert this.confirm_durable(2) == (1, 2)
    assert this.confirm_durable(2) == ()
    assert this.confirm_durable(5) == (3, 4, 5), "an answer that came together with one before it"


def test_what_is_said_keeps_its_order_for_each_agent() -> None:
    this = LeaderRound()
    for number in range(6):
        this.add_message("ab"[number % 2], message(number))
    assert this
    assert this.take_messages() == {
        "a": [message(0), message(2), message(4)],
        "b": [message(1), message(3), message(5)],
    }
    assert not this
    assert this.take_messages() == {}


@given(st.lists(st.lists(st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(1, 9), min_size=1))))
def test_the_log_folds_to_the_same_records(rounds: list[list[dict[str, int | None]]]) -> None:
    this, folded, expected, token = (
        LeaderRound(),
        dict[str, DurableRecord | None](),
        dict[str, DurableRecord | None](),
        0,
    )
    for decisions in rounds:
        for decision in decisions:
            token += 1
            changes = tuple((k, None if v is None else CounterRecord(v)) for k, v in decision.items())
            this.add_records(token, changes)
            expected.update(changes)
        write = this.take_write()
        folded.update(write[1] if write is not None else ())
        assert folded == expected
        assert not write or write[0] == token


class Owner:
    """A control machine that decides something at each message, and writes down when its rounds end."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.decided = 0

    def is_stopped(self) -> bool:
        return False

    def handle_message(self, message: object) -> None:
        self.log.append(str(message))
        self.decided += message != "nothing"

    def has_decided(self) -> bool:
        return self.decided > 0

    def end_round(self) -> None:
        self.log.append(f"end of {self.decided}")
        self.decided = 0


@pytest.fixture
def by_hand() -> tuple[Owner, BatchSystem[AgentMachine, Up], Any]:
    owner = Owner()
    system: BatchSystem[AgentMachine, Up] = BatchSystem(
        owner, lambda _: BatchHandler(system.router.send_control)
    )
    return owner, system, system.make_poller(0)


def test_a_round_ends_once_for_all_that_was_decided_in_it(by_hand: Any) -> None:
    owner, system, poller = by_hand
    for what in ("one", "two", "nothing"):
        system.router.send_control(what)
    poller.run_round()
    assert owner.log == ["one", "two", "nothing", "end of 2"]
    poller.run_round()
    assert (owner.log[4:], len(system.ready)) == ([], 0), "nothing is left to do"


def test_a_round_without_a_decision_has_no_end(by_hand: Any) -> None:
    owner, system, poller = by_hand
    system.router.send_control("nothing")
    poller.run_round()
    assert owner.log == ["nothing"]


def test_no_other_poller_has_the_owner_between_its_decisions_and_the_end(by_hand: Any) -> None:
    owner, system, poller = by_hand
    system.router.send_control("one")
    taken: list[object] = []
    end = owner.end_round

    def look() -> None:
        system.router.send_control("two")
        taken.append(system.ready.take_control())
        end()

    owner.end_round = look
    poller.run_round()
    assert taken == [None]
    owner.end_round = end
    poller.run_round()
    assert owner.log == ["one", "end of 1", "two", "end of 1"]
