"""The election: each transition, and any number of candidates with pauses and lost commits on a modelled
broker."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from coordinator.control.codec import Candidate
from coordinator.control.election import (
    Claimed,
    Discard,
    Discarded,
    Elect,
    Election,
    ElectionConfig,
    ElectionEffect,
    ElectionEvent,
    ElectionPhase,
    GiveUp,
    Lose,
    Observed,
    Reachable,
    ResignAsked,
    StartClaim,
    TopicLost,
    Unreachable,
    WriteFailed,
    begin_election,
    step_election,
)
from coordinator.control.kafka_log import ControlLog
from schemas.config.model import KafkaConfig
from schemas.problems import Problem

CONFIG = ElectionConfig(patience=2.0, pause=1.0, read_back=3.0)


class One:
    """One candidate, driven by hand."""

    def __init__(self, jitter: float = 0.5) -> None:
        self.now = 100.0
        self.state = begin_election(self.now, jitter)

    def __call__(self, event: ElectionEvent, after: float = 0.1) -> tuple[ElectionEffect, ...]:
        self.now += after
        self.state, effects = step_election(self.state, event, self.now, CONFIG)
        return effects

    def ask(self, seconds: float) -> tuple[ElectionEffect, ...]:
        """Ask the topic all the time until something happens; a tenth of a second each."""
        for _ in range(round(seconds * 10)):
            if effects := self(Reachable()):
                return effects
        return ()

    def lead(self, rev: int = 7) -> One:
        self.ask(1.0)
        self(Claimed(rev))
        assert self(Observed(rev, vacant=False)) == (Elect(rev),)
        return self


def test_an_empty_topic_is_claimed_after_the_jitter_alone() -> None:
    one = One(jitter=0.45)
    assert one.ask(0.4) == ()
    assert one.ask(0.2) == (StartClaim(),)


def test_a_leader_is_given_patience_from_its_last_message() -> None:
    one = One(jitter=0.5)
    one(Observed(3, vacant=False))
    assert one.ask(2.0) == ()
    one(Observed(3, vacant=False))
    assert one.ask(2.4) == ()
    assert one.ask(0.3) == (StartClaim(),)


def test_records_of_nobody_in_office_are_no_sign_of_life() -> None:
    one = One(jitter=0.0)
    one(Observed(3, vacant=False))
    for _ in range(15):
        one(Observed(3, vacant=False, alive=False))
    assert one.ask(0.6) == (StartClaim(),)


def test_silence_of_the_topic_is_not_silence_of_the_leader() -> None:
    one = One(jitter=0.0)
    one(Observed(3, vacant=False))
    for _ in range(50):
        assert one(Unreachable()) == ()
    assert one.ask(2.0) == ()
    assert one.ask(0.3) == (StartClaim(),)


def test_patience_begins_with_the_first_answer_after_an_outage() -> None:
    one = One(jitter=0.0)
    one(Observed(3, vacant=False))
    one(Reachable())
    one(Unreachable())
    assert one(Reachable(), after=1.4) == ()
    assert one.ask(1.9) == ()
    assert one.ask(0.2) == (StartClaim(),)


def test_a_pause_of_this_process_is_not_silence_of_the_leader() -> None:
    one = One(jitter=0.0)
    one(Observed(3, vacant=False))
    assert one(Reachable(), after=60.0) == ()
    assert one.ask(1.8) == ()
    assert one.ask(0.3) == (StartClaim(),)


def test_one_who_resigned_is_not_waited_for() -> None:
    one = One(jitter=0.3)
    one(Observed(3, vacant=False))
    one(Observed(3, vacant=True))
    assert one.ask(0.4) == (StartClaim(),)


@pytest.mark.parametrize("phase", ["following", "claiming", "leading"])
def test_without_its_topic_nobody_leads(phase: str) -> None:
    """Nothing about the topic follows this event, so no claim follows either."""
    one = One()
    if phase == "leading":
        one.lead()
    elif phase == "claiming":
        assert one.ask(1.0) == (StartClaim(),)
    effects = one(TopicLost(Problem("the topic was deleted", "start again")))
    ends = {"following": [], "claiming": [Discard], "leading": [Lose, Discard]}[phase]
    assert [type(effect) for effect in effects] == ends
    assert all(effect.why == "the topic was deleted" for effect in effects)  # type: ignore[union-attr]
    one(Discarded(0.0))
    assert one.state.phase is ElectionPhase.FOLLOWING


def test_nobody_leads_who_cannot_read_everything() -> None:
    one = One(jitter=0.0)
    one(Observed(3, vacant=True, readable=False))
    assert one.ask(30.0) == ()
    leader = One().lead()
    effects = leader(Observed(7, vacant=False, readable=False))
    assert [type(effect) for effect in effects] == [Lose, Discard]


def test_it_leads_only_after_its_claim_was_read_back() -> None:
    one = One()
    assert one.ask(1.0) == (StartClaim(),)
    assert one(Observed(5, vacant=False)) == ()
    assert one(Claimed(9)) == ()
    assert one(Observed(9, vacant=False)) == (Elect(9),)
    assert one.state.phase is ElectionPhase.LEADING


def test_the_claim_may_be_read_before_its_commit_is_known() -> None:
    one = One()
    one.ask(1.0)
    assert one(Observed(9, vacant=False)) == ()
    assert one(Claimed(9)) == (Elect(9),)


def test_a_claim_that_was_overtaken_never_leads() -> None:
    one = One()
    one.ask(1.0)
    one(Observed(11, vacant=False))
    assert [type(effect) for effect in one(Claimed(9))] == [Discard]
    assert one.state.phase is ElectionPhase.FENCED


def test_a_claim_that_cannot_be_read_back_is_given_up() -> None:
    one = One()
    one.ask(1.0)
    one(Claimed(9))
    for _ in range(25):
        assert one(Unreachable()) == ()
    assert one.ask(1.0) == (Discard("the claim could not be read back in time"),)


def test_a_later_claim_ends_the_term() -> None:
    one = One().lead(7)
    assert [type(effect) for effect in one(Observed(8, vacant=False))] == [Lose, Discard]


def test_a_failed_write_ends_the_term_once() -> None:
    one = One().lead(7)
    assert one(WriteFailed("outcome unknown")) == (Lose("outcome unknown"), Discard("outcome unknown"))
    assert one(WriteFailed("outcome unknown")) == ()


def test_a_failed_claim_is_followed_by_patience() -> None:
    one = One(jitter=0.1)
    assert one.ask(1.0) == (StartClaim(),)
    assert one(WriteFailed("fenced")) == (Discard("fenced"),)
    assert one.ask(10.0) == ()
    one(Discarded(0.2))
    assert one.ask(2.1) == ()
    assert one.ask(0.4) == (StartClaim(),)


def test_one_who_resigned_lets_the_others_go_first() -> None:
    one = One(jitter=0.0).lead(7)
    lost = Lose("asked", is_resignation=True)
    assert one(ResignAsked("asked")) == (lost, GiveUp(7), Discard("asked"))
    one(Discarded(0.0))
    one(Observed(7, vacant=True))
    assert one.ask(1.7) == ()
    assert one.ask(0.4) == (StartClaim(),)


@pytest.mark.parametrize("event", [ResignAsked("x"), WriteFailed("x"), Claimed(3), Discarded(0.0)])
def test_what_does_not_fit_changes_nothing(event: ElectionEvent) -> None:
    one = One()
    before = one.state
    assert one(event, after=0.0) == ()
    assert one.state == before


@pytest.mark.parametrize(
    ("event", "logged"),
    [
        (ResignAsked("shut down"), {"log_level": "info", "event": "resigned", "reason": "shut down"}),
        (WriteFailed("fenced"), {"log_level": "warning", "event": "term lost", "reason": "fenced"}),
    ],
)
def test_only_a_term_that_was_not_given_up_is_a_warning(event: ElectionEvent, logged: dict[str, str]) -> None:
    control = ControlLog(KafkaConfig(bootstrap="127.0.0.1:1"), Candidate("c", "", ""), lambda _: None)
    control._election = replace(control._election, phase=ElectionPhase.LEADING, rev=7)
    control._led = 7
    with capture_logs() as found:
        control._step_election(event)
    assert logged | {"rev": 7} in found


# several candidates on a modelled broker


@dataclass
class Broker:
    """The log: claims and writes by producer. The last producer that began is the only one that can write."""

    log: list[tuple[str, int]] = field(default_factory=lambda: [("beat", 0)])
    producer: int = 0

    def newest(self, end: int) -> int:
        return max((offset for offset, (kind, _) in enumerate(self.log[:end]) if kind == "claim"), default=0)


@dataclass
class Node:
    state: Election
    producer: int = 0
    read: int = 0
    leads: int = 0
    jobs: list[str] = field(default_factory=list)


class Cluster:
    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.broker = Broker()
        self.nodes = [Node(begin_election(0.0, 0.1 * number)) for number in range(count)]
        self.revs: list[int] = []

    def step(self, node: Node, event: ElectionEvent) -> None:
        node.state, effects = step_election(node.state, event, self.now, CONFIG)
        for effect in effects:
            match effect:
                case StartClaim():
                    node.jobs.append("claim")
                case Elect(rev):
                    assert node.leads == 0, "elected twice"
                    assert rev == self.broker.newest(node.read), "elected without reading its claim"
                    assert not self.revs or rev > self.revs[-1], "a term that is not later"
                    self.revs.append(rev)
                    node.leads = rev
                case Lose():
                    assert node.leads, "lost what it did not have"
                    node.leads = 0
                case GiveUp():
                    node.jobs.append("give up")
                case Discard():
                    node.jobs.append("discard")

    def act(self, what: str, node: Node) -> None:
        if what == "ask":
            self.step(node, Reachable())
        elif what == "no answer":
            self.step(node, Unreachable())
        elif what == "read" and node.read < len(self.broker.log):
            node.read = len(self.broker.log)
            newest = self.broker.newest(node.read)
            vacant = newest == 0 or ("resigned", newest) in self.broker.log[: node.read]
            self.step(node, Observed(newest, vacant))
        elif what == "work" and node.jobs:
            self.work(node, node.jobs.pop(0))
        elif what == "beat" and node.leads:
            self.write(node, "beat")
        elif what == "commit unknown" and node.leads:
            self.broker.log.append(("beat", node.leads)) if node.producer == self.broker.producer else None
            self.step(node, WriteFailed("unknown"))
        elif what == "resign":
            self.step(node, ResignAsked("asked"))

    def write(self, node: Node, kind: str) -> None:
        if node.producer != self.broker.producer:
            self.step(node, WriteFailed("fenced"))
            return
        writers = [other for other in self.nodes if other.leads and other.producer == self.broker.producer]
        assert len(writers) <= 1, "two can write"
        self.broker.log.append((kind, node.leads))

    def work(self, node: Node, job: str) -> None:
        if job == "claim":
            self.broker.producer += 1
            node.producer = self.broker.producer
            node.jobs.insert(0, "commit claim")
        elif job == "commit claim":
            if node.producer != self.broker.producer:
                self.step(node, WriteFailed("fenced"))
            else:
                self.broker.log.append(("claim", 0))
                self.step(node, Claimed(len(self.broker.log) - 1))
        elif job == "give up":
            if node.producer == self.broker.producer:
                self.broker.log.append(("resigned", max(self.revs)))
        else:
            node.producer = -1
            self.step(node, Discarded(0.1 * len(self.revs)))


ACTS = (
    "ask",
    "ask",
    "read",
    "read",
    "work",
    "work",
    "beat",
    "no answer",
    "commit unknown",
    "resign",
    "nothing",
)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(ACTS), st.sampled_from([0.05, 0.1, 0.3, 0.9, 4.0])),
        max_size=150,
    ),
)
def test_any_order_of_events_leaves_one_leader_in_the_end(
    count: int, acts: list[tuple[int, str, float]]
) -> None:
    """A pause is a candidate that is given nothing while time passes; its jobs then come late."""
    cluster = Cluster(count)
    for number, what, seconds in acts:
        cluster.now += seconds
        cluster.act(what, cluster.nodes[number % count])
    for _ in range(300):  # nothing fails any more: everybody does everything in turn
        cluster.now += 0.1
        for node in cluster.nodes:
            for what in ("read", "work", "ask", "beat"):
                cluster.act(what, node)
    leaders = [node for node in cluster.nodes if node.leads]
    assert len(leaders) == 1
    assert leaders[0].producer == cluster.broker.producer
    assert leaders[0].leads == cluster.broker.newest(len(cluster.broker.log))
