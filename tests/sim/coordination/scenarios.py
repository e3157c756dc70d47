"""Short scripted worlds, each for cells of the transition table (or meetings of faults) that seeds reach too
seldom.

Nothing in them is left to chance but delays: no fault happens unless the script makes it, and what it waits
for it names. The judge looks on as it does at a seed's world; after the script everything must become well
again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from coordinator.control.election import ElectionPhase
from coordinator.core.leader import state as o
from coordinator.core.members import MemberState
from coordinator.core.replication_table import Cell, ReplicaPhase, Role, SetState
from schemas.units import UnitOperation
from tests.sim.coordination.nodes import CAPTURES, UNITS, AgentNode, Violation
from tests.sim.coordination.scripted import UNIT, Scripted
from tests.sim.coordination.target import Worker
from tests.sim.coordination.world import CoordinationSimulation

_S, _R, _N = SetState, Role, ReplicaPhase
CAPTURE = CAPTURES[0]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`reaches`: the cells that it is for."""

    name: str
    reaches: tuple[Cell, ...]
    play: Callable[[Scripted], None]
    faults: tuple[str, ...] = ()


SCENARIOS: list[Scenario] = []


def scenario(
    *reaches: Cell, faults: tuple[str, ...] = ()
) -> Callable[[Callable[[Scripted], None]], Callable[[Scripted], None]]:
    """Register a script under its name."""

    def register(play: Callable[[Scripted], None]) -> Callable[[Scripted], None]:
        SCENARIOS.append(Scenario(play.__name__, reaches, play, faults))
        return play

    return register


@scenario(
    (_S.PREPARE, _R.PRIMARY, _N.STOPPING),
    (_S.PREPARE, _R.UNDETERMINED, _N.STOPPING),
    (_S.PREPARE, _R.UNDETERMINED, _N.STOPPED),
)
def the_origin_of_a_move_shuts_down_slowly(w: Scripted) -> None:
    origin, _ = w.preparing()
    w.unended.add(origin.name)
    w.shut_down(origin)
    w.reach((_S.PREPARE, _R.PRIMARY, _N.STOPPING), (_S.PREPARE, _R.UNDETERMINED, _N.STOPPING))
    w.let_end()
    w.reach((_S.PREPARE, _R.UNDETERMINED, _N.STOPPED))


@scenario((_S.PREPARE, _R.UNDETERMINED, _N.LOST))
def the_origin_of_a_move_dies_while_it_stops(w: Scripted) -> None:
    origin, _ = w.preparing()
    w.unended.add(origin.name)
    w.shut_down(origin)
    w.reach((_S.PREPARE, _R.PRIMARY, _N.STOPPING))
    w.crash_agent(origin, 0.1)
    w.reach((_S.PREPARE, _R.UNDETERMINED, _N.LOST))


@scenario((_S.PREPARE, _R.PRIMARY, _N.STOPPED))
def the_origin_of_a_move_fails(w: Scripted) -> None:
    origin, _ = w.preparing()
    w._end(origin, w.worker(origin), "failed")
    w.reach((_S.PREPARE, _R.PRIMARY, _N.STOPPED))


@scenario((_S.PREPARE, _R.PRIMARY, _N.LOST))
def the_origin_of_a_move_dies(w: Scripted) -> None:
    origin, _ = w.preparing()
    w.crash_agent(origin, 0.1)
    w.reach((_S.PREPARE, _R.PRIMARY, _N.LOST))


@scenario((_S.PREPARE, _R.SECONDARY, _N.STOPPING), (_S.PREPARE, _R.SECONDARY, _N.PREPARING))
def the_target_of_a_move_shuts_down_slowly(w: Scripted) -> None:
    _, target = w.preparing()
    w.unended.add(target.name)
    w.shut_down(target)
    w.reach((_S.PREPARE, _R.SECONDARY, _N.STOPPING))


@scenario((_S.PREPARE, _R.SECONDARY, _N.STOPPED))
def the_target_of_a_move_fails(w: Scripted) -> None:
    _, target = w.preparing()
    w._end(target, w.worker(target), "failed")
    w.reach((_S.PREPARE, _R.SECONDARY, _N.STOPPED))


@scenario((_S.PREPARE, _R.SECONDARY, _N.LOST))
def the_target_of_a_move_dies(w: Scripted) -> None:
    _, target = w.preparing()
    w.crash_agent(target, 0.1)
    w.reach((_S.PREPARE, _R.SECONDARY, _N.LOST))


@scenario(
    (_S.COMMIT, _R.PRIMARY, _N.STOPPING),
    (_S.COMMIT, _R.UNDETERMINED, _N.STOPPING),
    (_S.COMMIT, _R.UNDETERMINED, _N.STOPPED),
)
def the_origin_of_a_move_ends_slowly(w: Scripted) -> None:
    w.committing()
    w.reach((_S.COMMIT, _R.PRIMARY, _N.STOPPING), (_S.COMMIT, _R.UNDETERMINED, _N.STOPPING))
    w.let_end()
    w.reach((_S.COMMIT, _R.UNDETERMINED, _N.STOPPED))


@scenario((_S.COMMIT, _R.UNDETERMINED, _N.LOST))
def the_origin_of_a_move_dies_while_the_target_waits(w: Scripted) -> None:
    origin, _ = w.committing()
    w.reach((_S.COMMIT, _R.PRIMARY, _N.STOPPING))
    w.crash_agent(origin, 0.1)
    w.reach((_S.COMMIT, _R.UNDETERMINED, _N.LOST))


@scenario((_S.COMMIT, _R.PRIMARY, _N.LOST))
def the_origin_of_a_move_dies_before_it_heard_to_stop(w: Scripted) -> None:
    origin, target = w.settle()
    w.lost = w.no(UnitOperation.REMOVE, origin.name)
    w.notify(o.Move(UNIT, target.name))
    w.until("the new worker is ready", lambda: w.unit().state is _S.COMMIT)
    w.crash_agent(origin, 0.1)
    w.reach((_S.COMMIT, _R.PRIMARY, _N.LOST))


@scenario((_S.COMMIT, _R.SECONDARY, _N.STOPPING))
def the_target_of_a_move_shuts_down_while_it_waits(w: Scripted) -> None:
    _, target = w.committing()
    w.unended.add(target.name)
    w.shut_down(target)
    w.reach((_S.COMMIT, _R.SECONDARY, _N.STOPPING))


@scenario((_S.COMMIT, _R.SECONDARY, _N.STOPPED))
def the_target_of_a_move_fails_while_it_waits(w: Scripted) -> None:
    _, target = w.committing()
    w._end(target, w.worker(target), "failed")
    w.reach((_S.COMMIT, _R.SECONDARY, _N.STOPPED))


@scenario((_S.COMMIT, _R.SECONDARY, _N.LOST))
def the_target_of_a_move_dies_while_it_waits(w: Scripted) -> None:
    _, target = w.committing()
    w.crash_agent(target, 0.1)
    w.reach((_S.COMMIT, _R.SECONDARY, _N.LOST))


@scenario((_S.REPLICATING, _R.UNDETERMINED, _N.ABSENT))
def a_move_is_given_up_that_its_target_never_heard_of(w: Scripted) -> None:
    w.given_up(lost=UnitOperation.PREPARE)
    w.reach((_S.REPLICATING, _R.UNDETERMINED, _N.ABSENT))


@scenario(
    (_S.REPLICATING, _R.UNDETERMINED, _N.PREPARING),
    (_S.REPLICATING, _R.UNDETERMINED, _N.PREPARED),
    (_S.REPLICATING, _R.UNDETERMINED, _N.STOPPING),
    (_S.REPLICATING, _R.UNDETERMINED, _N.STOPPED),
)
def the_target_of_a_move_that_was_given_up_stops_late_and_slowly(w: Scripted) -> None:
    _, target = w.given_up()
    w.reach((_S.REPLICATING, _R.UNDETERMINED, _N.PREPARING))
    w.get_ready()
    w.reach((_S.REPLICATING, _R.UNDETERMINED, _N.PREPARED))
    w.unended.add(target.name)
    w.lost = lambda *_: False
    w.reach((_S.REPLICATING, _R.UNDETERMINED, _N.STOPPING))
    w.let_end()
    w.reach((_S.REPLICATING, _R.UNDETERMINED, _N.STOPPED))


@scenario((_S.REPLICATING, _R.UNDETERMINED, _N.LOST))
def the_target_of_a_move_that_was_given_up_dies(w: Scripted) -> None:
    _, target = w.given_up()
    w.crash_agent(target, 0.1)
    w.reach((_S.REPLICATING, _R.UNDETERMINED, _N.LOST))


def fresh_lease(w: Scripted, node: AgentNode) -> None:
    """Wait until an owner has just renewed what the agent runs."""
    key = (node.name, node.state.leader.agent_epoch)
    w.until("its leases are renewed", lambda: w.judge.leases.granted[key] > w.clock(node) + 3.95)


@scenario((_S.REPLICATING, _R.UNDETERMINED, _N.REPLICATING), faults=("clock",))
def a_new_owner_finds_two_that_write(w: Scripted) -> None:
    """The leader's clock leaps while the old worker, which has nothing to write, does not receive the order
    to stop: the leader declares its agent expired, starts the new worker, and dies before it has noted that
    the new one writes."""
    origin, target = w.settle()
    first = w.owner
    second = next(node for node in w.owners.values() if node is not first)
    w.lost = w.no(UnitOperation.REMOVE, origin.name)
    w.idle.add(origin.name)
    fresh_lease(w, origin)  # from when it has been told to stop it is granted no more
    w.notify(o.Move(UNIT, target.name))
    w.until("the new worker is ready", lambda: w.unit().state is _S.COMMIT)
    w.unheard = lambda agent, _: agent == origin.name
    w.run_until(w.now + 0.1)  # what was under way has arrived
    first.offset += 6.0
    for name, member in w.state.members.by_name.items():
        if name != origin.name:  # those were heard just now
            w.state.members.by_name[name] = replace(member, heard_at=w.clock(first))
    w.until("the new worker writes", lambda: w.worker(target).live)
    w.succeed(first, second)
    w.unheard = lambda *_: False
    w.until("the new owner knows of both", lambda: w.unit().state is _S.REPLICATING)
    w.beat(origin)  # before its lease is over: nobody renews it
    w.reach((_S.REPLICATING, _R.UNDETERMINED, _N.REPLICATING))


@scenario((_S.REMOVING, _R.UNDETERMINED, _N.REPLICATING), (_S.REMOVING, _R.UNDETERMINED, _N.STOPPING))
def a_unit_is_paused_and_its_worker_hears_of_it_late(w: Scripted) -> None:
    origin, _ = w.settle()
    w.lost = w.no(UnitOperation.REMOVE, origin.name)
    w.unended.add(origin.name)
    w.notify(o.Pause(UNIT))
    w.reach((_S.REMOVING, _R.UNDETERMINED, _N.REPLICATING))
    w.lost = lambda *_: False
    w.reach((_S.REMOVING, _R.UNDETERMINED, _N.STOPPING))


@scenario((_S.REMOVING, _R.UNDETERMINED, _N.PREPARING), (_S.REMOVING, _R.UNDETERMINED, _N.PREPARED))
def a_unit_is_paused_while_it_moves(w: Scripted) -> None:
    _, target = w.preparing()
    w.lost = w.no(UnitOperation.REMOVE, target.name)
    w.notify(o.Pause(UNIT))
    w.reach((_S.REMOVING, _R.UNDETERMINED, _N.PREPARING))
    w.get_ready()
    w.reach((_S.REMOVING, _R.UNDETERMINED, _N.PREPARED))


@scenario((_S.REMOVING, _R.UNDETERMINED, _N.ABSENT), (_S.PREPARE, _R.SECONDARY, _N.ABSENT))
def a_unit_is_paused_before_the_target_of_its_move_hears_of_it(w: Scripted) -> None:
    _, target = w.settle()
    w.lost = w.no(UnitOperation.PREPARE, target.name)
    w.notify(o.Move(UNIT, target.name))
    w.until("the move begins", lambda: w.replica(_R.SECONDARY) is not None)
    w.reach((_S.PREPARE, _R.SECONDARY, _N.ABSENT))
    w.notify(o.Pause(UNIT))
    w.reach((_S.REMOVING, _R.UNDETERMINED, _N.ABSENT))


@scenario()
def a_new_owner_is_asked_for_moves_before_it_has_heard_of_one_under_way(w: Scripted) -> None:
    """They wait: with the one that it will hear of they would be too many."""
    origin, target = w.committing()
    first, second = w.owner, next(node for node in w.owners.values() if node is not w.owner)
    third = next(name for name in w.agents if name not in {origin.name, target.name})
    w.unheard = lambda agent, _: agent == origin.name
    w.succeed(first, second)
    w.until(
        "the other agents have synced", lambda: sum(m.accepts for m in w.state.members.by_name.values()) == 2
    )
    w.until("the catalogue is known", lambda: w.state.plan.inventory is not None)
    w.unready |= set(w.agents)
    for unit, current in sorted(w.state.sets.by_unit.items()):
        primary = current.primary
        if primary is not None:
            w.notify(o.Move(unit, target.name if primary.agent == third else third))
    w.run_until(w.now + 1.1)
    assert w.unit().state is _S.RECOVERING
    w.unheard = lambda *_: False
    w.until("the owner has heard of all", lambda: w.unit().state is not _S.RECOVERING)


@scenario()
def an_agent_dies_with_a_lease_of_an_owner_that_is_no_longer_one(w: Scripted) -> None:
    """The old owner, cut off from the control topic, does not know yet and grants it; the new one has to wait
    for its end."""
    origin, _ = w.settle()
    first, second = w.owner, next(node for node in w.owners.values() if node is not w.owner)
    w.until("the old owner is confirmed", lambda: w.clock(first) - w.state.claim.confirmed_at < 0.1)
    w.cuts |= {(first.name, "kafka"), ("kafka", first.name)}
    w.usurp(second)
    w.until("the new owner leads", lambda: w.current() is second)
    key = (origin.name, origin.state.leader.agent_epoch)
    before = w.now
    w.until(
        "the old owner renews",
        lambda: w.judge.leases.granted[key] > w.clock(origin) + 3.95 and w.now > before + 0.7,
    )
    w.crash_agent(origin, 30.0)
    w.until("it is taken for gone", lambda: w.state.members.by_name[origin.name].state is MemberState.EXPIRED)
    w.cuts.clear()


@scenario()
def a_candidate_hears_late_that_it_has_claimed(w: Scripted) -> None:
    """Another candidate has claimed since, which it has not read yet: it leads for all it knows, and must
    not send anything."""
    w.settle()
    first, second = w.owner, next(node for node in w.owners.values() if node is not w.owner)
    w.answer_takes[second.name] = 3.0
    w.usurp(second)
    w.until("the claim has landed", lambda: w.topic.claims[-1][1] == second.name)
    w.until("the old owner knows", lambda: first.state is None)
    w._read(second)
    second.lags_until = w.now + 6.0
    w.until("it may claim again", lambda: first.election.phase is ElectionPhase.FOLLOWING)
    w.usurp(first)
    w.until("it has claimed again", lambda: w.topic.claims[-1][1] == first.name)
    w.pause(first, 5.0)  # so that agents do not hear of it
    for agent in w.agents.values():
        agent.leader, agent.heard = list(w.owners).index(second.name), w.now + 3.0
    w.until("the late one begins", lambda: second.state is not None)
    assert second.state is not None
    assert second.state.rev < w.topic.claims[-1][0]
    w.run_until(w.now + 1.5)
    w.answer_takes.clear()


@scenario()
def a_move_waits_for_another_and_the_owner_dies(w: Scripted) -> None:
    """It was accepted, so the next owner carries it out."""
    _, target = w.preparing()
    other = next(
        u for u in UNITS if u != UNIT and (p := w.unit(u).primary) is not None and p.agent != target.name
    )
    w.notify(o.Move(other, target.name))
    first, second = w.owner, next(node for node in w.owners.values() if node is not w.owner)
    w.run_until(w.now + 0.3)
    w.succeed(first, second)
    w.get_ready()
    w.until("it is carried out", lambda: _at(w, other) == target.name, 30.0)
    w.until("nothing of it is left", lambda: f"move/{other}" not in second.records)


def _at(w: Scripted, unit: str) -> str | None:
    node = w.current()
    current = node.state.sets.by_unit.get(unit) if node is not None and node.state is not None else None
    primary = current.primary if current is not None and current.state is _S.REPLICATING else None
    return primary.agent if primary is not None else None


@scenario()
def a_move_is_cancelled(w: Scripted) -> None:
    """While the new worker gets ready; nothing else moves the unit at once."""
    origin, _ = w.preparing()
    w.notify(o.CancelMove(UNIT))
    w.until("it is over", lambda: _at(w, UNIT) == origin.name and len(w.unit().replicas) == 1)
    w.get_ready()
    w.run_until(w.now + 3.0)
    assert _at(w, UNIT) == origin.name


@scenario()
def a_drain_is_undone(w: Scripted) -> None:
    """Without a restart of the agent, which is given units again."""
    origin, target = w.settle()
    w.unready.update(name for name in w.agents if name != origin.name)
    w.notify(o.Drain(origin.name))
    w.until("it gives units away", lambda: any(s.secondary for s in w.state.sets.by_unit.values()))
    w.run_until(w.now + 1.5)  # it has been told by now
    w.notify(o.Undrain(origin.name))
    w.get_ready()
    w.notify(o.Drain(target.name))
    w.until("it takes units", lambda: not w.state.sets.by_agent.get(target.name), 20.0)
    assert w.state.sets.by_agent[origin.name]
    w.notify(o.Undrain(target.name))


@scenario()
def an_owner_whose_clock_is_fast_drops_a_unit_and_can_store_nothing(w: Scripted) -> None:
    """What it fences under must not be above what the next one gives out, whose clock is right."""
    w.settle()
    first, second = w.owner, next(node for node in w.owners.values() if node is not w.owner)
    second.wall += 3600.0
    spec = w.inventory.pop(UNIT)
    w.succeed(first, second)
    w.cuts.add((second.name, "kafka"))
    w.run_until(w.now + 3.0)
    w.cuts.clear()
    w._start_candidate(first)
    w.run_until(w.now + 0.01)
    w._read(first)
    w.succeed(second, first)
    w.inventory[UNIT] = spec


@scenario()
def a_capture_process_outlives_its_agent_and_claims_its_topic_late(w: Scripted) -> None:
    """Another one has claimed it by then: it is refused."""
    _, target = w.settle(CAPTURE)
    w.notify(o.Move(CAPTURE, target.name))
    w.until("the new worker is told to start", lambda: _takes(w, target))
    late = w.worker(target, CAPTURE)
    w.crash_agent(target, 30.0)
    w.until("another has claimed it", lambda: w.captured[CAPTURE].latest > late.assignment)
    CoordinationSimulation._orphan(w, late)
    assert w.captured[CAPTURE].refused


@scenario()
def what_a_paused_capture_worker_had_sent_arrives_late(w: Scripted) -> None:
    """Another one has defined the tables by then: readers drop it."""
    origin, _ = w.settle(CAPTURE)
    w.slow = 9.0
    worker = w.worker(origin, CAPTURE)
    before = worker.transaction
    w.until("a request is under way", lambda: worker.transaction is not before and _sends(worker))
    w.slow = None
    w.pause(origin, 30.0)
    w.until("it is dropped", lambda: bool(w.captured[CAPTURE].dropped), 20.0)


def _sends(worker: Worker) -> bool:
    sent = worker.transaction
    return sent is not None and sent.open and sent.end > sent.start


def _takes(w: Scripted, node: AgentNode) -> bool:
    return any(worker.unit == CAPTURE and worker.stage == "taking" for worker in node.workers.values())


def play(one: Scenario, seed: int = 0) -> Scripted:
    """Play a scenario to its good end. Raises Violation as a seed does."""
    world = Scripted(seed, one.faults)
    try:
        one.play(world)
        missing = [cell for cell in one.reaches if not world.judge.cells[cell]]
        assert not missing, f"not reached: {[[p.value for p in cell] for cell in missing]}"
        world.finish()
    except AssertionError as error:
        raise Violation(f"scenario {one.name}, seed {seed}, at {world.now:.3f} s: {error}") from error
    return world
