"""The coordinator's cores in the modelled world: seeds, coverage of the transition table, and that it can
fail."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest

from coordinator.core.agent_unit import AgentUnit
from coordinator.core.leader import periodic
from coordinator.core.leader.state import LeaderState, Move
from coordinator.core.replication_table import CELLS, Cell, ReplicaPhase, Role, SetState
from schemas.units import UnitOperation, UnitPhase
from tests.sim.coordination.mutations import BY_NAME, FENCE_AT_ONCE, MUTATIONS, Mutation, attribute, find
from tests.sim.coordination.nodes import MESSAGE_FAULTS, Options, Violation
from tests.sim.coordination.scenarios import SCENARIOS, Scenario, play
from tests.sim.coordination.scripted import UNIT, Scripted
from tests.sim.coordination.world import CoordinationSimulation, outcome_of, run, run_seed
from tests.sim.seeds import over_seeds

PAGE = Path(__file__).parents[3] / "docs/explanation/coordination.md"
SEEDS = int(os.environ.get("ROWLOCK_SIM_SEEDS", "200"))

_S, _R, _N = SetState, Role, ReplicaPhase
#: Cells that correct agents and owners cannot reach; tests/unit has each of them by hand. Why not: an agent
#: reports Stopped until it is noted, so what was heard once is never just absent; states only go forward in
#: one epoch; an undetermined replica of a set that prepares or commits had been seen to stop.
UNREACHABLE: set[Cell] = {
    *(
        (s, _R.PRIMARY, n)
        for s in (_S.PREPARE, _S.REPLICATING)
        for n in (_N.ABSENT, _N.PREPARING, _N.PREPARED)
    ),
    *((_S.COMMIT, _R.PRIMARY, n) for n in (_N.ABSENT, _N.PREPARING)),
    *((_S.COMMIT, _R.SECONDARY, n) for n in (_N.ABSENT, _N.PREPARING, _N.REPLICATING)),
    (_S.PREPARE, _R.SECONDARY, _N.REPLICATING),
    *(
        (s, _R.UNDETERMINED, n)
        for s in (_S.PREPARE, _S.COMMIT)
        for n in (_N.ABSENT, _N.PREPARING, _N.PREPARED, _N.REPLICATING)
    ),
}
#: Quick ones, each for another oracle; all of MUTATIONS are in the slow test.
QUICK = (
    "a stopping primary is cleared",
    "the fence is read without a lock",
    "the minimum skips a missing unit",
    "progress is shown before it is stored",
    "an older owner can still store",
)


@pytest.mark.parametrize("seed", [1128, 2941, 4365, 7525])
def test_seeds_that_failed_once(seed: int) -> None:
    run_seed(seed)


@pytest.mark.timeout(1800)
def test_every_seed_keeps_every_invariant_and_becomes_well_again() -> None:
    """Seeds and scenarios together reach every cell of the table that can be reached; faults strike in every
    state."""
    cells: Counter[Cell] = Counter()
    struck: Counter[tuple[str, SetState]] = Counter()
    events = dropped = refused = 0
    for outcome in chain(over_seeds(run_seed, range(SEEDS)), (outcome_of(play(one)) for one in SCENARIOS)):
        cells += outcome.cells
        struck += outcome.struck
        events += outcome.events
        dropped += outcome.dropped
        refused += outcome.refused
    print(f"{SEEDS} seeds, {events} events, {len(cells)} of {len(CELLS)} cells")
    assert not set(cells) & UNREACHABLE, "a cell is reached that was said to be unreachable"
    assert dropped, "no capture worker was ever overtaken"
    assert refused, "no capture worker ever came too late"
    missing = set(CELLS) - UNREACHABLE - set(cells)
    assert not missing, f"cells that nothing reached: {[[p.value for p in cell] for cell in missing]}"
    pairs = set(product((*CoordinationSimulation(Options(0))._faults(), *MESSAGE_FAULTS), SetState)) - set(
        struck
    )
    assert not pairs, f"faults that never struck while a unit was: {[(f, s.value) for f, s in pairs]}"


@pytest.mark.parametrize("one", SCENARIOS, ids=lambda one: one.name)
def test_a_scenario_reaches_its_cells_whatever_the_delays(one: Scenario) -> None:
    for seed in range(1, 4):
        play(one, seed)


def test_an_orphan_that_is_not_told_to_end_is_found() -> None:
    """I6: long after the heal an agent holds what the owner never gave it, and the owner does not mind."""
    w = Scripted()
    _, agent = w.settle()
    w.heal()
    agent.state.units.by_name[UNIT] = AgentUnit(UNIT, w.state.numbers.counter + 1, UnitPhase.PREPARED)
    with BY_NAME["orphans are ignored"].patches[0](), pytest.raises(AssertionError, match="orphan"):
        w.run_until(w.now + 3.0)


def test_a_dispatch_without_an_answer_is_found() -> None:
    """I10: after the heal an instruction gets lost."""
    w = Scripted()
    _, agent = w.settle()
    w.heal()
    w.run_until(w.now + 0.1)
    w.lost = w.no(UnitOperation.PREPARE, agent.name)
    w.notify(Move(UNIT, agent.name))
    with pytest.raises(AssertionError, match="unanswered"):
        w.run_until(w.now + 3.0)


def test_a_fence_under_an_epoch_that_is_not_durable_is_found() -> None:
    scene = next(one for one in SCENARIOS if "clock_is_fast" in one.name)
    with ExitStack() as stack:
        for patch in FENCE_AT_ONCE.patches:
            stack.enter_context(patch())
        with pytest.raises(Violation, match="not well again: apply/p/u3"):
            play(scene)


def test_a_write_after_the_removal_is_found() -> None:
    """I8: the record of the unit is gone, and a worker of it goes on."""
    w = Scripted()
    w.settle()
    w.judge.committed(((f"unit/{UNIT}", None),))
    with pytest.raises(AssertionError, match="is removed, and is written"):
        w.run_until(w.now + 3.0)


def test_a_seed_is_the_same_run_every_time() -> None:
    first, second = run(Options(3)), run(Options(3))
    assert (first.events, first.now, first.judge.cells) == (second.events, second.now, second.judge.cells)
    assert first.target.rows.keys() == second.target.rows.keys()
    assert all(first.target.rows[u].writes == second.target.rows[u].writes for u in first.target.rows)


def test_without_faults_nothing_is_alarmed_and_nothing_moves_after_the_start() -> None:
    world = run(Options(1, faults=()))
    assert not world.judge.alarms
    assert world.judge.cells[SetState.REMOVING, Role.UNDETERMINED, ReplicaPhase.STOPPING] == 0


@pytest.mark.parametrize("name", QUICK)
def test_a_known_bug_put_back_is_found(name: str) -> None:
    assert find(BY_NAME[name], range(100)) is not None


def test_a_mutation_that_no_longer_fits_the_cores_is_not_taken_for_found() -> None:
    def stale(state: LeaderState, _sources: Any) -> Any:
        return state.no_such_thing  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="no_such_thing"):
        find(Mutation("stale", "", (attribute(periodic, "collect_pipeline_units", stale),)), range(1))


def test_the_page_names_the_bugs_that_can_be_put_back() -> None:
    table = PAGE.read_text().partition("<!-- mutations -->")[2].partition("<!-- /mutations -->")[0]
    rows = [line.split(" | ")[:2] for line in table.strip().splitlines()[2:]]
    assert rows == [[f"| {m.name}", m.ref] for m in MUTATIONS], (
        "→ python -m tests.sim.coordination.mutations 2000"
    )


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_known_bug_put_back_is_found(mutation: Mutation) -> None:
    assert find(mutation, range(2000)) is not None
