"""What `rowlock run` decides: restarts with backoff, refusals, clean stops. Pure, with a clock of the test's
own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.processes import supervisor
from rowlock.processes.supervisor import (
    CHILD_RESTART_BACKOFF,
    REFUSED_EXIT_CODE,
    ChildExited,
    ChildPhase,
    KillChild,
    LogNote,
    StartChild,
    StopRequested,
    SupervisorEffect,
    SupervisorEvent,
    SupervisorState,
    SupervisorTick,
    TerminateChild,
    begin_supervision,
    is_finished,
    step_supervisor,
)

CHILDREN = ["coordinator", "agent"]


def play(
    state: SupervisorState, *events: tuple[float, SupervisorEvent]
) -> tuple[SupervisorState, list[SupervisorEffect]]:
    effects: list[SupervisorEffect] = []
    for now, event in events:
        state, more = step_supervisor(state, event, now)
        effects += [effect for effect in more if not isinstance(effect, LogNote)]
    return state, effects


def started() -> SupervisorState:
    return play(begin_supervision(CHILDREN), (0.0, SupervisorTick()))[0]


def test_everything_starts_at_once() -> None:
    _, effects = play(begin_supervision(CHILDREN), (0.0, SupervisorTick()), (0.1, SupervisorTick()))
    assert effects == [StartChild("coordinator"), StartChild("agent")]


def test_a_dead_child_comes_back_with_doubling_backoff() -> None:
    state, now, waits = started(), 0.0, []
    for _ in range(7):
        state, _ = play(state, (now, ChildExited("agent", -9)))
        waits.append(state.children["agent"].backoff.next_at - now)
        early, _ = play(state, (state.children["agent"].backoff.next_at - 0.01, SupervisorTick()))
        assert early.children["agent"].phase is ChildPhase.WAITING
        now = state.children["agent"].backoff.next_at
        state, effects = play(state, (now, SupervisorTick()))
        assert effects == [StartChild("agent")]
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    state, _ = play(state, (now + CHILD_RESTART_BACKOFF.quiet, ChildExited("agent", 1)))
    assert state.children["agent"].backoff.next_at - now - CHILD_RESTART_BACKOFF.quiet == 1


def test_exit_0_unasked_is_an_accident() -> None:
    state, _ = play(started(), (1.0, ChildExited("agent", 0)))
    assert state.children["agent"].phase is ChildPhase.WAITING
    _, effects = play(state, (2.0, SupervisorTick()))
    assert effects == [StartChild("agent")]


@pytest.mark.parametrize(("refusing", "other"), [("coordinator", "agent"), ("agent", "coordinator")])
def test_a_refusal_ends_the_run_with_2_and_is_not_tried_again(refusing: str, other: str) -> None:
    state, effects = play(started(), (1.0, ChildExited(refusing, REFUSED_EXIT_CODE)))
    assert effects == [TerminateChild(other)]
    assert not is_finished(state)
    state, effects = play(
        state, (1.5, SupervisorTick()), (2.0, ChildExited(other, 0)), (99.0, SupervisorTick())
    )
    assert effects == []
    assert is_finished(state)
    assert state.exit_code == REFUSED_EXIT_CODE


def test_a_stop_is_clean_and_not_restarted() -> None:
    state, effects = play(started(), (1.5, StopRequested()), (9.0, SupervisorTick()))
    assert effects == [TerminateChild("coordinator"), TerminateChild("agent")]
    state, effects = play(
        state,
        (10.0, ChildExited("coordinator", 0)),
        (10.0, ChildExited("agent", -15)),
        (99.0, SupervisorTick()),
    )
    assert effects == []
    assert is_finished(state)
    assert state.exit_code == 0


def test_what_waits_to_be_started_again_is_not_once_a_stop_is_asked() -> None:
    state, _ = play(started(), (1.0, ChildExited("agent", 1)))
    state, effects = play(state, (1.5, StopRequested()), (9.0, SupervisorTick()))
    assert effects == [TerminateChild("coordinator")]
    assert is_finished(play(state, (10.0, ChildExited("coordinator", 0)))[0])


def test_what_does_not_stop_is_killed() -> None:
    state, _ = play(started(), (1.0, StopRequested()))
    _, effects = play(state, (1.0 + supervisor.CHILD_STOP_TIMEOUT_S, SupervisorTick()))
    assert effects == [KillChild("coordinator"), KillChild("agent")]


EVENTS = st.one_of(
    st.just(SupervisorTick()),
    st.builds(ChildExited, st.sampled_from(CHILDREN), st.sampled_from([0, 1, 2, -9])),
    st.builds(StopRequested, st.sampled_from([0, 2])),
)


@given(st.lists(st.tuples(st.floats(0, 40), EVENTS), max_size=60))
def test_never_two_at_once_and_never_a_start_after_a_stop(
    history: list[tuple[float, SupervisorEvent]],
) -> None:
    state, now = begin_supervision(CHILDREN), 0.0
    alive: set[str] = set()
    stopped = False
    for wait, event in history:
        now += wait
        if isinstance(event, ChildExited):
            if event.name not in alive:
                continue
            alive.discard(event.name)
        state, effects = step_supervisor(state, event, now)
        stopped = stopped or isinstance(event, StopRequested)
        for effect in effects:
            if isinstance(effect, StartChild):
                assert effect.name not in alive
                assert not stopped
                alive.add(effect.name)
            elif isinstance(effect, TerminateChild | KillChild):
                assert effect.name in alive
    running = (ChildPhase.RUNNING, ChildPhase.STOPPING)
    assert alive == {child.name for child in state.children.values() if child.phase in running}
