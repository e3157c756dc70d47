"""The oracles: what must hold after every event, and what must be true again some time after all faults have
ended.

I1 an epoch is one worker, and at most one live worker has the target's epoch · I2 the target never goes back
· I3 no checkpoint is ahead of the target or goes back, nor does what is shown of it, from one term to the
next · I4 owner_rev grows, and no agent acts for a lower one · I5 and I7 `owner.check` · I6 no orphan in the
end · I8 nothing runs in the end that the inventory lacks · I9 limits · I10 and liveness `converged` · C4 no
worker starts beside another that was not taken for lost · C9 no worker goes on past its lease, and the leader
waits for its end (`leases`) · C11 a final mark is taken. A captured topic has no gap, and its reader takes
events of one writer at a time.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from coordinator.core import agent as agents
from coordinator.core import records as durable
from coordinator.core.agent_unit import PrepareWorker, RemoveWorker, StartWorker
from coordinator.core.leader import state as o
from coordinator.core.leader.invariants import VIOLATION_ALARM
from coordinator.core.leader.sets import find_desired_unit
from coordinator.core.members import MemberState
from coordinator.core.messages import Dispatch, DispatchResponse, Down, Heartbeat, Sync
from coordinator.core.progress import PipelineProgress
from coordinator.core.replication_table import Cell, SetState
from coordinator.server.operators import view as views
from schemas.units import UnitOperation, UnitPhase, UnitProgress
from tests.kits import invariants
from tests.kits.invariants import require_invariant
from tests.sim.coordination.leases import LeaseJudge
from tests.sim.coordination.nodes import FAR
from tests.sim.coordination.target import Transaction, Worker
from tests.sim.coordination.watch import CatalogueJudge, LimitsJudge, Watch

if TYPE_CHECKING:
    from tests.sim.coordination.nodes import AgentNode, LeaderNode
    from tests.sim.coordination.world import CoordinationSimulation


def _known(ts: int | None) -> int:
    """Return a time that can be compared: nothing known is before everything."""
    return -1 if ts is None else ts


class Judge:
    def __init__(self, world: CoordinationSimulation) -> None:
        self.world = world
        self.cells: Counter[Cell] = Counter()
        self.alarms: Counter[str] = Counter()
        self.opened: dict[int, tuple[str, str]] = {}
        self.removed: dict[tuple[str, str, int], int] = {}
        #: (agent, agent_epoch) → (term that took it for gone, highest epoch given by then)
        self.missing: dict[tuple[str, int], dict[int, int]] = {}
        self.expired: dict[int, set[str]] = {}
        self.registered: dict[str, int] = {}
        self.progress: dict[str, int] = {}
        #: (pipeline, term) → its checkpoint as the term computed it last
        self.computed: dict[tuple[str, int], int] = {}
        #: (pipeline, which time) → term → what it showed first and last
        self.shown: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
        self.final: list[tuple[str, int, UnitProgress]] = []
        self.applied: dict[tuple[str, int], int] = {}
        self.watch = Watch(world)
        self.leases = LeaseJudge(world)
        self.inventory = CatalogueJudge(world)
        self.limits = LimitsJudge()
        #: unit → the epochs in its durable record, and the highest that ever wrote
        self.holders: dict[str, tuple[int, ...]] = {}
        self.wrote_last: dict[str, int] = {}
        #: terms that have begun; an answer may be so late that a later one has begun before it
        self.begun: set[int] = set()
        #: (fault, state of a unit when it struck)
        self.struck: Counter[tuple[str, SetState]] = Counter()

    def always(self) -> None:
        """After every event of the world, whosever it was."""
        self._accepted()
        self.watch.always()
        self.leases.always()
        self.inventory.always()

    def _accepted(self) -> None:
        """I1: of the workers that write now, the target would accept one a unit."""
        found: dict[str, Worker] = {}
        for node in self.world.agents.values():
            for worker in node.workers.values():
                if worker.stage != "writing" or worker.dead:
                    continue
                row = self.world.target.rows.get(worker.unit)
                if row is not None and row.assignment == worker.assignment:
                    other = found.setdefault(worker.unit, worker)
                    require_invariant(other is worker, f"the target would accept {worker} and {other}")

    def fault(self, kind: str) -> None:
        """Count in which states of units a fault strikes."""
        node = self.world.current()
        if node is not None and node.state is not None:
            self.struck.update({(kind, current.state) for current in node.state.sets.by_unit.values()})

    # owners

    def before_owner(self, node: LeaderNode, event: o.LeaderEvent) -> None:
        """Write down the final marks that this event brings from replicas the owner expects them from."""
        self.final = []
        state = node.state
        if state is not None:
            self.limits.before(state)
            self.inventory.before(state)
        if state is None or not isinstance(event, o.Received):
            return
        message = event.message
        member = state.members.by_name.get(message.agent)
        head = message.header
        if member is None or head.owner_rev != state.rev or head.op_seq <= member.seq:
            return
        if member.agent_epoch != head.agent_epoch or not member.durable:
            return
        if isinstance(message, Sync | Heartbeat) and not math.isfinite(message.sent):
            return  # a lie: nothing of it is believed, and what is true of it comes again
        statuses = message.statuses if isinstance(message, Sync | Heartbeat) else ()
        if isinstance(message, DispatchResponse):
            statuses = (message.status,)
        if member.state is not MemberState.SYNCED and not isinstance(message, Sync):
            return
        for status in statuses:
            current = state.sets.by_unit.get(status.unit)
            known = current is not None and any(
                (r.agent, r.assignment) == (message.agent, status.assignment) for r in current.replicas
            )
            if known and status.state is UnitPhase.STOPPED and status.mark is not None:
                self.final.append((status.unit, status.assignment, status.mark))

    def owner(self, node: LeaderNode, event: o.LeaderEvent | None, out: list[o.LeaderDecision]) -> None:
        """`event`: None for the claim that begins a term."""
        state = node.state
        if state is None:
            return
        if event is None:
            require_invariant(state.rev not in self.begun, f"term {state.rev} begins twice")
            self.begun.add(state.rev)
            self.limits.before(state)
        invariants.check_leader_invariants(state)
        self.watch.owner(node, event, out)
        self.leases.owner(node, out)
        for unit, _, mark in self.final:
            memo = state.sets.memos.get(unit)
            held = memo.mark if memo is not None else None
            taken = memo is None or (held is not None and held.checkpoint_ts >= mark.checkpoint_ts)
            require_invariant(taken, f"final mark {mark} of {unit} was not taken: {held}")
        self.final = []
        self._believed(state, event, out)
        self._count(state)
        self._members(node, state)
        self.limits.after(state, event)
        self.inventory.after(state, event)
        self._pipelines(state)

    def _believed(
        self, state: o.LeaderState, event: o.LeaderEvent | None, out: list[o.LeaderDecision]
    ) -> None:
        """No agent's word raises what is never taken back, or ends a term."""
        require_invariant(state.numbers.counter < FAR // 2, f"epochs go on at {state.numbers.counter}")
        for unit, memo in state.sets.memos.items():
            mark = memo.mark
            far = mark is not None and max(mark.checkpoint_ts, mark.resolved_ts) >= FAR // 2
            require_invariant(
                not far and 0 <= memo.rows_per_s < FAR, f"{unit} is at {mark}, {memo.rows_per_s} rows/s"
            )
        ended = any(isinstance(effect, o.StepDown) for effect in out)
        may_end = isinstance(event, o.Resign) or self.world.has_planted_violation
        require_invariant(not ended or may_end, f"the term ends because of {event}")

    def _count(self, state: o.LeaderState) -> None:
        self.cells.update(state.sets.cells)
        state.sets.cells.clear()

    def _members(self, node: LeaderNode, state: o.LeaderState) -> None:
        for name, member in state.members.by_name.items():
            if member.durable:
                self.registered[name] = max(self.registered.get(name, 0), member.agent_epoch)
            if member.state is MemberState.EXPIRED and name not in self.expired.setdefault(state.rev, set()):
                self.expired[state.rev].add(name)
                self.missing.setdefault((name, member.agent_epoch), {})[state.rev] = state.numbers.counter
                self._lease(node, self.world.agents[name], member.agent_epoch)
                self.leases.missing(state.rev, self.world.agents[name], member.agent_epoch)
            if member.state is MemberState.SYNCED:
                self.expired.get(state.rev, set()).discard(name)

    def _lease(self, owner: LeaderNode, node: AgentNode, agent_epoch: int) -> None:
        """An agent that ran all the time has stopped by itself before it is taken for gone."""
        world = self.world
        if node.state.leader.agent_epoch != agent_epoch or not node.alive or "clock" in world.faults:
            return
        undisturbed = not node.paused and world.now - node.paused_at > 10.0
        if (
            undisturbed
            and world.current() is owner
            and not owner.paused
            and world.now - owner.paused_at > 10.0
        ):
            writing = [w.unit for w in node.workers.values() if w.live and not w.stopping]
            require_invariant(not writing, f"agent {node.name} is taken for gone and writes {writing}")

    def _pipelines(self, state: o.LeaderState) -> None:
        for pipeline, progress in state.pipelines.progress.items():
            key = (pipeline, state.rev)
            ts, before = _known(progress.checkpoint_ts), self.computed.get(key)
            if before is None:
                before = _known(state.pipelines.stored.get(pipeline, PipelineProgress()).checkpoint_ts)
            self.computed[key] = ts
            require_invariant(ts >= before, f"checkpoint of {pipeline} from {before} back to {ts}")
            if ts > before:
                self._applied(state, pipeline, ts)
        for row in views.list_pipeline_rows(state):
            self._showed(row.pipeline, "checkpoint", state.rev, _known(row.checkpoint_ts))
            self._showed(row.pipeline, "resolved", state.rev, _known(row.resolved_ts))

    def _applied(self, state: o.LeaderState, pipeline: str, ts: int) -> None:
        for unit, spec in (state.plan.inventory or {}).items():
            if spec.pipeline is not None:
                done = self.applied.get((unit, int(spec.uid)), 0)
                require_invariant(
                    done >= ts, f"checkpoint {ts} of {pipeline}, but {unit} is applied up to {done}"
                )

    def _showed(self, pipeline: str, what: str, rev: int, ts: int) -> None:
        """No term shows less than an earlier one has shown or, where that does not know yet that it is over,
        will show."""
        terms = self.shown.setdefault((pipeline, what), {})
        first, last = terms.get(rev, (ts, ts))
        if rev in terms and ts == last:
            return
        require_invariant(ts >= last, f"shown {what} of {pipeline} from {last} back to {ts}")
        terms[rev] = (first, ts)
        for other, (begins, ends) in terms.items():
            low, high = (ends, first) if other < rev else (ts, begins)
            require_invariant(
                other == rev or low <= high, f"shown {what} of {pipeline} by terms {other} and {rev}: {terms}"
            )

    def committed(self, records: tuple[tuple[str, durable.DurableRecord | None], ...]) -> None:
        for key, record in records:
            if key.startswith("unit/") and not isinstance(record, durable.UnreadableRecord):
                held = record.holders if isinstance(record, durable.UnitRecord) else ()
                self.holders[key.removeprefix("unit/")] = tuple(assignment for *_, assignment in held)
            if isinstance(record, durable.PipelineRecord) and record.progress.checkpoint_ts is not None:
                before = self.progress.get(record.pipeline, -1)
                now = record.progress.checkpoint_ts
                require_invariant(
                    now >= before, f"durable checkpoint of {record.pipeline} from {before} back to {now}"
                )
                self.progress[record.pipeline] = now

    def alarm(self, what: str, about: str) -> None:
        self.alarms[what] += 1
        require_invariant(what != "impossible report", f"{what}: {about}")
        is_expected = what != VIOLATION_ALARM or self.world.has_planted_violation
        require_invariant(is_expected, f"{what}: {about}")
        faults = self.world.faults
        alone = "busy machine" in faults and faults <= {"busy machine", "join", "catalogue", "commands"}
        require_invariant(what != "preparation given up" or not alone, f"it got on, and {what}: {about}")

    # agents

    def agent(
        self, node: AgentNode, event: agents.AgentEvent, rev: int, out: list[agents.AgentEffect]
    ) -> None:
        state = node.state
        require_invariant(
            state.leader.rev >= rev, f"agent {node.name} went back from term {rev} to {state.leader.rev}"
        )
        if isinstance(event, agents.InstructionReceived) and isinstance(event.message, Dispatch):
            self._instructed(node, event.message)
            self.watch.answered(node, event.message, out)
        for effect in out:
            if isinstance(effect, RemoveWorker) and isinstance(event, agents.InstructionReceived):
                self._stopped(event.message, effect)
            if not isinstance(effect, PrepareWorker | StartWorker):
                continue
            header = event.message.header if isinstance(event, agents.InstructionReceived) else None
            require_invariant(
                header is not None and header.owner_rev == state.leader.rev,
                f"acted for a lower term: {event}",
            )
            require_invariant(
                header is not None and header.agent_epoch == state.leader.agent_epoch,
                f"meant for another: {event}",
            )
            if isinstance(effect, PrepareWorker):
                me = (effect.unit, state.incarnation)
                holder = self.opened.setdefault(effect.assignment, me)
                closed = self.removed.get((state.incarnation, effect.unit, state.leader.rev), 0)
                require_invariant(effect.assignment > closed, f"{effect} was removed before, up to {closed}")
                require_invariant(
                    holder == me, f"epoch {effect.assignment} was given to {holder} and to {me}"
                )
            else:
                self._started(node, effect)

    def _instructed(self, node: AgentNode, message: Dispatch) -> None:
        """Write down which epochs an agent was told to close, in this term."""
        head, state = message.header, node.state
        if message.op is UnitOperation.REMOVE and (head.owner_rev, head.agent_epoch) == (
            state.leader.rev,
            state.leader.agent_epoch,
        ):
            key = (state.incarnation, message.unit, head.owner_rev)
            self.removed[key] = max(self.removed.get(key, 0), head.assignment)

    def _stopped(self, message: Down, effect: RemoveWorker) -> None:
        """An instruction stops what it was given for, or makes room for a later epoch; never a later one."""
        if isinstance(message, Dispatch):
            assignment = message.header.assignment
            require_invariant(
                assignment >= effect.assignment, f"an instruction for epoch {assignment} stops {effect}"
            )

    def _started(self, node: AgentNode, effect: StartWorker) -> None:
        """C4: others that may write were taken for gone, by this owner or by a registration."""
        rev = node.state.leader.rev
        if "clock" in self.world.faults and self._given_away(node, effect):
            return
        for other in self.world.agents.values():
            for worker in other.workers.values():
                if worker.unit != effect.unit or worker.assignment == effect.assignment or not worker.live:
                    continue
                judged = self.missing.get((worker.agent, worker.agent_epoch), {})
                missing = any(term <= rev and worker.assignment <= given for term, given in judged.items())
                missing = missing or self.registered.get(worker.agent, 0) > worker.agent_epoch
                missing = missing or self._forgotten(worker.agent, rev)
                require_invariant(
                    missing, f"{node.name} starts {effect.unit} at {effect.assignment} beside {worker}"
                )

    def _given_away(self, node: AgentNode, effect: StartWorker) -> bool:
        """Whether a leader whose clock leapt declared this agent expired within its lease: only the fence
        holds it back."""
        judged = self.missing.get((node.name, node.state.leader.agent_epoch), {})
        return any(effect.assignment <= given for given in judged.values())

    def _forgotten(self, agent: str, rev: int) -> bool:
        """A term that has begun without knowing the agent."""
        return not any(
            o_.state and o_.state.rev == rev and agent in o_.state.members.by_name
            for o_ in self.world.owners.values()
        )

    # target

    def wrote(self, transaction: Transaction) -> None:
        unit = transaction.worker.unit
        row = self.world.target.row(unit)
        uid = self.world.uids[unit]
        key = (unit, uid)
        self.applied[key] = max(self.applied.get(key, 0), row.offset)
        assignments = [assignment for assignment, _ in row.writes[-2:]]
        ends = [end for _, end in row.writes[-2:]]
        require_invariant(
            assignments == sorted(assignments),
            f"{unit}: epoch {assignments[-1]} wrote after {assignments[0]}",
        )
        require_invariant(ends == sorted(ends), f"{unit}: {ends[-1]} written over {ends[0]}")
        self._assigned(unit, transaction.worker.assignment)

    def _assigned(self, unit: str, assignment: int) -> None:
        """I8 and C2: who writes has been assigned durably, and the unit has not been removed since. Also over
        the life of the unit, whose row begins anew with another uid: an epoch that has been followed never
        writes again."""
        held = self.holders.get(unit, ())
        require_invariant(bool(held), f"{unit} is removed, and is written by epoch {assignment}")
        require_invariant(
            assignment <= max(held), f"{unit} is written by epoch {assignment}, before its record {held}"
        )
        last = self.wrote_last.get(unit, 0)
        require_invariant(
            assignment >= last,
            f"{unit}: epoch {assignment} wrote after {last}, in an earlier life of the unit",
        )
        self.wrote_last[unit] = assignment

    def captured(self, worker: Worker) -> None:
        """Events of a capture unit have arrived (the topic itself says when some are missing)."""
        topic = self.world.captured[worker.unit]
        gens = [gen for gen, _ in topic.writes[-2:]]
        require_invariant(gens == sorted(gens), f"{worker.unit}: read in the order of gens {gens}")
        writing = [
            w
            for node in self.world.agents.values()
            for w in node.workers.values()
            if w.live and w.stage == "writing" and w.unit == worker.unit and w.gen == topic.seen
        ]
        require_invariant(len(writing) <= 1, f"readers would take events of {writing}")

    # the end

    def why_not(self) -> str:
        """Return what is not yet as it shall be, or nothing."""
        world = self.world
        node = world.current()
        if node is None or node.state is None or node.state.claim.silent:
            return "there is no owner"
        state = node.state
        if set(state.plan.inventory or ()) != set(world.inventory):
            return "the owner does not know the catalogue"
        if any(
            state.plan.inventory[u].uid != s.uid for u, s in world.inventory.items() if state.plan.inventory
        ):
            return "the owner knows an old catalogue"
        runs = {
            (unit, held.assignment, agent.name): held.state
            for agent in world.agents.values()
            for unit, held in agent.state.units.by_name.items()
            if held.state is not UnitPhase.ABSENT and agent.alive
        }
        for unit in sorted(state.sets.by_unit):
            if unit in state.sets.restricted:
                runs = {key: held for key, held in runs.items() if key[0] != unit}
                continue
            current, spec = state.sets.by_unit[unit], find_desired_unit(state, unit)
            if spec is None:
                return f"{unit} is still there or paused: {current.state.value}"
            primary = current.primary
            if current.state is not SetState.REPLICATING or primary is None or len(current.replicas) > 1:
                return f"{unit} is {current}"
            held = runs.pop((unit, primary.assignment, primary.agent), None)
            if held is not UnitPhase.REPLICATING:
                return f"{unit} is held {held} by {primary}"
            topic = world.captured.get(unit)
            done = topic.accepted if topic is not None else world.target.row(unit).offset
            if done < world.heads[unit]:
                return f"{unit} is done up to {done} of {world.heads[unit]}"
            memo = state.sets.memos[unit]
            if memo.mark is None or memo.mark.checkpoint_ts < world.heads[unit]:
                return f"{unit} is marked {memo.mark} of {world.heads[unit]}"
        if runs:
            return f"orphans {runs}"
        return self._behind(state)

    def _behind(self, state: o.LeaderState) -> str:
        """A pipeline is shown at its sources' head; higher only where a unit that was created again lags what
        was shown."""
        for row in views.list_pipeline_rows(state):
            if state.sets.restricted:
                continue  # the marks of such a unit may not be known
            heads = [
                self.world.heads[u] for u, s in self.world.inventory.items() if s.pipeline == row.pipeline
            ]
            head = max(min(heads), self.progress.get(row.pipeline, -1))
            if (row.checkpoint_ts or 0) != head:
                return f"{row.pipeline} is shown at {row.checkpoint_ts} of {head}"
        return ""

    def converged(self) -> bool:
        return not self.why_not()

    def after(self) -> None:
        """Once well: no live worker beside the primaries, and the members are all there."""
        world = self.world
        live = Counter(w.unit for a in world.agents.values() for w in a.workers.values() if w.live)
        node = world.current()
        left = node.state.sets.restricted if node is not None and node.state is not None else ()
        live.update({unit: 1 - live[unit] for unit in left})
        require_invariant(all(live[unit] == 1 for unit in world.inventory), f"live workers {dict(live)}")
        require_invariant(set(live) == set(world.inventory), f"live workers of unwanted units {dict(live)}")
