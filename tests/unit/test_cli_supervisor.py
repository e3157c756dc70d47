"""What `rowlock run` decides: restarts with backoff, refusals, clean stops. Pure, with a clock of the test's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.processes import supervisor
from rowlock.processes.supervisor import (
    REFUSED,
    RESTARTS,
    Effect,
    Event,
    Exited,
    Kill,
    Note,
    Phase,
    Start,
    State,
    StopAsked,
    SupervisorTick,
    Terminate,
    begin,
    finished,
    step,
)

CHILDREN = ["coordinator", "agent"]


def play(state: State, *events: tuple[float, Event]) -> tuple[State, list[Effect]]:
    effects: list[Effect] = []
    for now, event in events:
        state, more = step(state, event, now)
        effects += [effect for effect in more if not isinstance(effect, Note)]
    return state, effects


def started() -> State:
    return play(begin(CHILDREN), (0.0, SupervisorTick()))[0]


def test_everything_starts_at_once() -> None:
    _, effects = play(begin(CHILDREN), (0.0, SupervisorTick()), (0.1, SupervisorTick()))
    assert effects == [Start("coordinator"), Start("agent")]


def test_a_dead_child_comes_back_with_doubling_backoff() -> None:
    state, now, waits = started(), 0.0, []
    for _ in range(7):
        state, _ = play(state, (now, Exited("agent", -9)))
        waits.append(state.children["agent"].backoff.next_at - now)
        early, _ = play(state, (state.children["agent"].backoff.next_at - 0.01, SupervisorTick()))
        assert early.children["agent"].phase is Phase.WAITING
        now = state.children["agent"].backoff.next_at
        state, effects = play(state, (now, SupervisorTick()))
        assert effects == [Start("agent")]
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    state, _ = play(state, (now + RESTARTS.quiet, Exited("agent", 1)))
    assert state.children["agent"].backoff.next_at - now - RESTARTS.quiet == 1


def test_exit_0_unasked_is_an_accident() -> None:
    state, _ = play(started(), (1.0, Exited("agent", 0)))
    assert state.children["agent"].phase is Phase.WAITING
    _, effects = play(state, (2.0, SupervisorTick()))
    assert effects == [Start("agent")]


@pytest.mark.parametrize(("refusing", "other"), [("coordinator", "agent"), ("agent", "coordinator")])
def test_a_refusal_ends_the_run_with_2_and_is_not_tried_again(refusing: str, other: str) -> None:
    state, effects = play(started(), (1.0, Exited(refusing, REFUSED)))
    assert effects == [Terminate(other)]
    assert not finished(state)
    state, effects = play(state, (1.5, SupervisorTick()), (2.0, Exited(other, 0)), (99.0, SupervisorTick()))
    assert effects == []
    assert finished(state)
    assert state.exit_code == REFUSED


def test_a_stop_is_clean_and_not_restarted() -> None:
    state, effects = play(started(), (1.5, StopAsked()), (9.0, SupervisorTick()))
    assert effects == [Terminate("coordinator"), Terminate("agent")]
    state, effects = play(
        state, (10.0, Exited("coordinator", 0)), (10.0, Exited("agent", -15)), (99.0, SupervisorTick())
    )
    assert effects == []
    assert finished(state)
    assert state.exit_code == 0


def test_what_waits_to_be_started_again_is_not_once_a_stop_is_asked() -> None:
    state, _ = play(started(), (1.0, Exited("agent", 1)))
    state, effects = play(state, (1.5, StopAsked()), (9.0, SupervisorTick()))
    assert effects == [Terminate("coordinator")]
    assert finished(play(state, (10.0, Exited("coordinator", 0)))[0])


def test_what_does_not_stop_is_killed() -> None:
    state, _ = play(started(), (1.0, StopAsked()))
    _, effects = play(state, (1.0 + supervisor.STOP_S, SupervisorTick()))
    assert effects == [Kill("coordinator"), Kill("agent")]


EVENTS = st.one_of(
    st.just(SupervisorTick()),
    st.builds(Exited, st.sampled_from(CHILDREN), st.sampled_from([0, 1, 2, -9])),
    st.builds(StopAsked, st.sampled_from([0, 2])),
)


@given(st.lists(st.tuples(st.floats(0, 40), EVENTS), max_size=60))
def test_never_two_at_once_and_never_a_start_after_a_stop(history: list[tuple[float, Event]]) -> None:
    state, now = begin(CHILDREN), 0.0
    alive: set[str] = set()
    stopped = False
    for wait, event in history:
        now += wait
        if isinstance(event, Exited):
            if event.name not in alive:
                continue
            alive.discard(event.name)
        state, effects = step(state, event, now)
        stopped = stopped or isinstance(event, StopAsked)
        for effect in effects:
            if isinstance(effect, Start):
                assert effect.name not in alive
                assert not stopped
                alive.add(effect.name)
            elif isinstance(effect, Terminate | Kill):
                assert effect.name in alive
    running = (Phase.RUNNING, Phase.STOPPING)
    assert alive == {child.name for child in state.children.values() if child.phase in running}
