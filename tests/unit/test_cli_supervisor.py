"""What `rowlock run` decides: restarts with backoff, refusals, clean stops. Pure, with a clock of the test's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rowlock import supervisor
from rowlock.supervisor import (
    REFUSED,
    Child,
    Effect,
    Event,
    Exited,
    Kill,
    Note,
    Phase,
    Start,
    State,
    StopAsked,
    Terminate,
    Tick,
    begin,
    finished,
    step,
)

CHILDREN = [
    Child("c1", "capture"),
    Child("c2", "capture"),
    Child("only", "capture", may_finish=True),
    Child("a1", "apply"),
]


def play(state: State, *events: tuple[float, Event]) -> tuple[State, list[Effect]]:
    effects: list[Effect] = []
    for now, event in events:
        state, more = step(state, event, now)
        effects += [effect for effect in more if not isinstance(effect, Note)]
    return state, effects


def started(**options: bool) -> State:
    return play(begin(CHILDREN, **options), (0.0, Tick()))[0]


def test_everything_starts_at_once() -> None:
    _, effects = play(begin(CHILDREN), (0.0, Tick()), (0.1, Tick()))
    assert effects == [Start("c1"), Start("c2"), Start("only"), Start("a1")]


def test_a_dead_child_comes_back_with_doubling_backoff() -> None:
    state, now, waits = started(), 0.0, []
    for _ in range(7):
        state, _ = play(state, (now, Exited("c1", -9)))
        waits.append(state.children["c1"].due - now)
        early, _ = play(state, (state.children["c1"].due - 0.01, Tick()))
        assert early.children["c1"].phase is Phase.WAITING
        now = state.children["c1"].due
        state, effects = play(state, (now, Tick()))
        assert effects == [Start("c1")]
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    state, _ = play(state, (now + supervisor.STABLE_S, Exited("c1", 1)))
    assert state.children["c1"].due - now - supervisor.STABLE_S == 1


def test_exit_0_unasked_is_an_accident_unless_it_may_finish() -> None:
    state, _ = play(started(), (1.0, Exited("c1", 0)), (1.0, Exited("only", 0)))
    assert state.children["c1"].phase is Phase.WAITING
    assert state.children["only"].phase is Phase.DONE


def test_a_refused_source_does_not_stop_the_others() -> None:
    state, effects = play(started(), (1.0, Exited("c1", REFUSED)), (99.0, Tick()))
    assert effects == []
    assert state.children["c1"].phase is Phase.REFUSED


def test_when_all_of_a_role_refuse_the_run_ends_with_2() -> None:
    state, effects = play(started(), (1.0, Exited("a1", REFUSED)))
    assert effects == [Terminate("c1"), Terminate("c2"), Terminate("only")]
    state, _ = play(state, *((2.0, Exited(name, 0)) for name in ("c1", "c2", "only")))
    assert finished(state)
    assert state.exit_code == REFUSED


def test_while_catching_up_one_refusal_ends_the_run() -> None:
    state, effects = play(started(all_needed=True), (1.0, Exited("c1", REFUSED)))
    assert Terminate("c2") in effects
    assert state.exit_code == REFUSED


def test_a_stop_is_clean_and_not_restarted() -> None:
    state, _ = play(started(), (1.0, Exited("c2", 1)))
    state, effects = play(state, (1.5, StopAsked()), (9.0, Tick()))
    assert effects == [Terminate("c1"), Terminate("only"), Terminate("a1")]
    state, _ = play(
        state, *((10.0, Exited(name, code)) for name, code in (("c1", 0), ("only", 0), ("a1", -15)))
    )
    assert finished(state)
    assert state.exit_code == 0


def test_what_does_not_stop_is_killed() -> None:
    state, _ = play(started(), (1.0, StopAsked()))
    _, effects = play(state, (1.0 + supervisor.STOP_S, Tick()))
    assert Kill("a1") in effects


EVENTS = st.one_of(
    st.just(Tick()),
    st.builds(Exited, st.sampled_from([child.name for child in CHILDREN]), st.sampled_from([0, 1, 2, -9])),
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
