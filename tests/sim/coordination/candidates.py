"""Candidates and owners: they read and write the control topic, elect, and lead."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.control import election as elections
from coordinator.control.codec import Beat, Changes, Claim, Message, Resigned, Snapshot
from coordinator.control.fold import ControlFold, is_snapshot_due
from coordinator.core import records as durable
from coordinator.core.leader import state as o
from coordinator.core.leader import steps as owners
from coordinator.core.messages import Down
from coordinator.core.schedulers import UnitKind
from coordinator.server.leader_round import LeaderRound
from tests.sim.coordination.control import Open, Producer, Wrote
from tests.sim.coordination.ground import Ground
from tests.sim.coordination.nodes import (
    CAPTURES,
    CONFIG,
    ELECTION,
    PIPELINE,
    SNAPSHOT_AFTER,
    WRITE_TIMEOUT,
    LeaderNode,
    Node,
)


class Candidates(Ground):
    """The product's own fold, election and owner, over the control topic's model."""

    def _start_candidate(self, node: LeaderNode) -> None:
        """A process that has read nothing yet."""
        node.alive, node.paused = True, False
        node.fold, node.producer = ControlFold(), Producer(broken=True)
        node.election = elections.begin_election(self.clock(node), self.rng.uniform(0.0, 0.5))

    def _candidate(self, node: LeaderNode) -> None:
        self.at(0.5, lambda: self._candidate(node))
        if node.alive and not node.paused:
            self._read(node)
            self.step_leader(node, o.Tick())

    def _read(self, node: LeaderNode) -> None:
        """Fold what is new in the control topic, and tell the election."""
        if not self._reaches_kafka(node):
            self.vote(node, elections.Unreachable())
            return
        self.happened["control: open for too long"] += self.topic.expire(self.now)
        self.happened["control: cut before a reader"] += 0 < node.fold.end < self.topic.start
        new = self.topic.read(node.fold.end) if self.now >= node.lags_until else []
        counted = [node.fold.fold_message(offset, message) for offset, message in new]
        if counted:
            vacant = node.fold.rev == 0 or node.fold.resigned
            self.vote(
                node,
                elections.Observed(node.fold.rev, vacant, not node.fold.unreadable, any(counted)),
            )
        self.vote(node, elections.Reachable())

    def _reaches_kafka(self, node: Node) -> bool:
        return self.up("kafka") and not {(node.name, "kafka"), ("kafka", node.name)} & self.cuts

    def vote(self, node: LeaderNode, event: elections.ElectionEvent) -> None:
        node.election, effects = elections.step_election(node.election, event, self.clock(node), ELECTION)
        for effect in effects:
            match effect:
                case elections.StartClaim():
                    self.claim(node)
                case elections.Elect(rev):
                    self._lead(node, rev)
                case elections.Lose():
                    self.end_owner(node)
                case elections.GiveUp(rev):
                    self.happened["control: resigned"] += 1
                    self._write(node, (Resigned(rev),), lambda _: None)
                case elections.Discard():
                    self.on(node, 0.1, lambda: self._discard(node))

    def _discard(self, node: LeaderNode) -> None:
        node.producer.broken = True
        self.vote(node, elections.Discarded(self.rng.uniform(0.0, 0.5)))

    def claim(self, node: LeaderNode) -> None:
        """A new producer and its first transaction; the claim at offset 0 is made twice, as that is no
        term."""
        node.producer = Producer()
        node.claim_began = self.clock(node)
        message = Claim(node.candidate, f"{node.name}-{node.life}")

        def claimed(rev: int) -> None:
            if rev == 0:
                self._write(node, (message,), claimed)
                return
            self.vote(node, elections.Claimed(rev))
            self._read(node)

        self._write(node, (message,), claimed)

    def _lead(self, node: LeaderNode, rev: int) -> None:
        fold = node.fold
        node.records, node.base, node.end = dict(fold.records), fold.base, fold.end
        if fold.base > 0:
            self._trim(fold.base)
        now, floor = self.clock(node), self.wall_ms(node)
        began = node.claim_began
        node.state, out = owners.begin_leader_term(
            node.name, rev, dict(fold.records), CONFIG, now,
            floor=floor, claimed_at=began, after_violation=node.has_seen_violation,
        )  # fmt: skip
        self._owner_effects(node, out)
        self.judge.owner(node, None, out)
        self.on(node, self.rng.uniform(0.0, 0.5), lambda: self._read_topics(node))
        self.on(node, 0.5, lambda: self._beat(node))

    def _read_topics(self, node: LeaderNode) -> None:
        if node.state is not None:
            self.give_catalogue(node)
            self.on(node, 1.0, lambda: self._read_topics(node))

    def give_catalogue(self, node: LeaderNode) -> None:
        """Give the inventory as the poller does: the same object while its contents are the same. Kafka may
        list no topic for a moment."""
        units = tuple(self.inventory.values())
        read = {spec.source for spec in units if spec.kind is UnitKind.APPLY}
        if self.now < self.unlisted_until:
            self.happened["empty metadata"] += 1
            units = tuple(spec for spec in units if spec.kind is UnitKind.CAPTURE)
        found = o.Inventory(units, {PIPELINE: tuple(sorted(read))})
        if found != node.given:
            node.given = found
        self.step_leader(node, node.given or found)

    def _beat(self, node: LeaderNode) -> None:
        if node.state is not None:
            began = self.clock(node)
            self._commit(node, (), lambda: self.step_leader(node, o.Confirmed(began)))
            self.on(node, 0.7, lambda: self._beat(node))

    def _commit(
        self,
        node: LeaderNode,
        records: tuple[tuple[str, durable.DurableRecord | None], ...],
        then: Callable[[], None],
    ) -> None:
        """Records of this term, or a beat; and a snapshot behind them where the topic has become long."""
        if node.state is None:
            return
        rev = node.state.rev

        def wrote(offset: int) -> None:
            if node.state is None or node.state.rev != rev:
                return
            for key, record in records:
                if record is None:
                    node.records.pop(key, None)
                else:
                    node.records[key] = record
            node.end = offset + 2
            if is_snapshot_due(node.end - node.base, 0, 0, most=SNAPSHOT_AFTER, most_bytes=1):
                self._shorten(node, rev)
            then()

        self._write(node, (Changes(rev, records) if records else Beat(rev),), wrote)

    def _shorten(self, node: LeaderNode, rev: int) -> None:
        """Before anything else that waits: the snapshot is of what is written by now."""
        marker = Snapshot(rev, node.candidate, f"{node.name}-{node.life}")
        node.base = node.end

        def wrote(offset: int) -> None:
            self.happened["control: snapshot"] += 1
            node.base = offset
            self._trim(offset)

        node.producer.jobs.insert(0, ((marker, Changes(rev, tuple(sorted(node.records.items())))), wrote))

    def _trim(self, before: int) -> None:
        """The deletion is asked for and not awaited; it comes when it comes."""
        self.at(self.rng.uniform(0.01, 3.0), lambda: self.topic.trim(before))

    def _write(self, node: LeaderNode, messages: tuple[Message, ...], wrote: Wrote) -> None:
        node.producer.jobs.append((messages, wrote))
        self._send(node, node.producer)

    def _send(self, node: LeaderNode, producer: Producer) -> None:
        """The next transaction: from here on it lands even if its writer is paused or dead by then."""
        if producer.busy or producer.broken or not producer.jobs:
            return
        producer.busy, began = True, self.now
        messages, wrote = producer.jobs.pop(0)

        def land() -> None:
            if not self._reaches_kafka(node) and self.now - began < WRITE_TIMEOUT:
                self.at(0.2, land)
                return
            offset = self._land(node, producer, messages)
            self.on(node, self._answer_takes(node), lambda: done(offset))

        def done(offset: int | None) -> None:
            if producer is not node.producer:
                return  # of an earlier life, or an earlier claim
            producer.busy = False
            if offset is None:
                self.vote(node, elections.WriteFailed("fenced, or nobody knows"))
                return
            wrote(offset)
            self._send(node, producer)

        self.at(self.rng.uniform(0.003, 0.05), land)

    def _answer_takes(self, node: LeaderNode) -> float:
        """How long the node's writer waits after its transaction has landed: what it learns then was true
        then, and not now."""
        if self.healed or "late answer" not in self.faults or self.later.random() > 0.1:
            return 0.001
        self.happened["control: answered late"] += 1
        return self.later.uniform(0.5, 4.0)

    def _land(self, node: LeaderNode, producer: Producer, messages: tuple[Message, ...]) -> int | None:
        """A transaction is at the broker; returns its offset where the writer gets an answer. Otherwise the
        writer never uses the producer again."""
        fate = self._fate_of_commit(node, producer)
        offset = None
        if fate != "unreachable" and isinstance(messages[0], Claim) and not producer.number:
            self.topic.begin(producer)
        if fate in {"", "unknown"}:
            offset = self.topic.write(producer, node.name, messages)
            self._durable(messages if offset is not None else ())
        elif fate == "hangs":
            hanging = self.topic.hang(producer, node.name, messages, self.now)
            if hanging is not None and self.rng.random() < 0.5:
                self.at(self.rng.uniform(0.3, 5.0), lambda: self._end_late(hanging))
        self.happened[f"control: {fate}"] += bool(fate)
        producer.broken = fate != "" or offset is None
        return None if producer.broken else offset

    def _fate_of_commit(self, node: LeaderNode, producer: Producer) -> str:
        if not self._reaches_kafka(node):
            return "unreachable"
        if producer.dying:
            return "hangs"
        if self.healed:
            return ""
        if "commit unknown" in self.faults and self.rng.random() < 0.01:
            return "unknown"
        return "hangs" if "hanging commit" in self.faults and self.rng.random() < 0.04 else ""

    def _end_late(self, hanging: Open) -> None:
        """What was asked for before the process gave up or died arrives after all; a later producer has
        fenced it, or not."""
        landed = self.topic.commit(hanging)
        self._durable(hanging.messages if landed else ())
        self.happened["control: ended late"] += landed
        self.happened["control: fenced while open"] += not landed

    def _durable(self, messages: tuple[Message, ...]) -> None:
        for message in messages[:1]:
            self.judge.committed(message.changes if isinstance(message, Changes) else ())

    def step_leader(self, node: LeaderNode, event: o.LeaderEvent) -> None:
        if node.state is None:
            return
        self.judge.before_owner(node, event)
        node.state, out = owners.step_leader(node.state, event, self.clock(node))
        self.judge.owner(node, event, out)
        self._owner_effects(node, out)

    def _owner_effects(self, node: LeaderNode, out: list[o.LeaderDecision]) -> None:
        for effect in out:
            match effect:
                case o.SendMessage(to, message):
                    node.round.add_message(to, message)
                case o.Persist(token, records):
                    node.round.add_records(token, records)
                case o.Fence(unit, _, assignment):
                    self.at(self.rng.uniform(0.01, 0.3), lambda u=unit, e=assignment: self._fence(node, u, e))  # type: ignore[misc]
                case o.StepDown(why):
                    self.vote(node, elections.ResignAsked(why))
                    return
                case o.Alarm(what, about):
                    self.judge.alarm(what, about)
                case _:
                    pass
        if node.round and not node.rounding:
            node.rounding = True
            self.on(node, self._round_takes(), lambda: self._end_round(node))

    def _round_takes(self) -> float:
        """What else comes up meanwhile is decided in the same round."""
        if self.healed or "long rounds" not in self.faults or self.later.random() < 0.3:
            return 0.0
        self.happened["long round"] += 1
        return self.later.uniform(0.01, 0.4)

    def _end_round(self, node: LeaderNode) -> None:
        """As server.leader_machine does: one write, and then the messages."""
        node.rounding = False
        write = node.round.take_write()
        if write is not None:
            token, records = write
            self._commit(node, records, lambda: self._stored(node, token))
        for to, messages in node.round.take_messages().items():
            for message in messages:
                self.carry(node.name, to, lambda to=to, m=message: self._down(node, to, m))  # type: ignore[misc]

    def _stored(self, node: LeaderNode, token: int) -> None:
        for one in node.round.confirm_durable(token):
            self.step_leader(node, o.Persisted(one))

    def _fence(self, node: LeaderNode, unit: str, assignment: int) -> None:
        """A captured topic needs none: the next capture's gen does it (rowlock/coordinator/fences.py)."""
        if unit not in CAPTURES:
            if not self.up("target"):
                self.on(node, 0.5, lambda: self._fence(node, unit, assignment))
                return
            self.target.fence(unit, assignment)
        self.on(node, 0.01, lambda: self.step_leader(node, o.Fenced(unit, assignment)))

    def end_owner(self, node: LeaderNode) -> None:
        if node.state is not None:  # as server.leader_machine does
            node.has_seen_violation = bool(node.state.sets.restricted)
        node.state, node.round, node.rounding = None, LeaderRound(), False
        node.life += 1
        node.queue.clear()
        node.producer.jobs.clear()
        node.producer.busy = False

    def current(self) -> LeaderNode | None:
        """The rightful owner, if it is there."""
        if not self.topic.claims:
            return None
        rev, name = self.topic.claims[-1]
        node = self.owners[name]
        return node if node.alive and node.state is not None and node.state.rev == rev else None

    # of the layers above

    def _down(self, origin: LeaderNode, to: str, message: Down) -> None:
        raise NotImplementedError
