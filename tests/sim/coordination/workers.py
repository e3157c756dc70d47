"""Workers: they take over progress rows and captured topics, write, and end; they do not always know what
became of a request."""

from __future__ import annotations

from coordinator.core import agent as agents
from coordinator.core.agent_unit import PrepareWorker
from schemas.units import Prepared, PrepareProgress, UnitProgress, UnitProgressed, WorkerEnded
from tests.sim.coordination.agents import Agents
from tests.sim.coordination.nodes import CAPTURES, AgentNode
from tests.sim.coordination.target import Transaction, Worker


class Workers(Agents):
    """Apply workers at the target, capture workers at Kafka."""

    def _open(self, node: AgentNode, effect: PrepareWorker) -> None:
        state = node.state
        worker = Worker(
            node.name, state.leader.agent_epoch, state.incarnation, effect.unit, effect.assignment
        )
        node.workers[effect.unit, effect.assignment] = worker
        if "stuck worker" in self.faults and not self.healed and self.rng.random() < 0.3:
            return
        hole = node.name in self.black_holes and not self.healed
        if hole:
            self.happened["black hole"] += 1
            if self.options.seed % 2:
                return
        fails = hole or ("worker fails" in self.faults and not self.healed and self.rng.random() < 0.15)
        then = (lambda: self._end(node, worker, "failed")) if fails else (lambda: self._ready(node, worker))
        takes = self.rng.uniform(0.05, 0.5)
        if "busy machine" in self.faults and not self.healed:
            takes *= 40  # up to many times what a preparation may take that does not get on
            self._get_on(node, worker)
        self.on(node, takes, then)

    def _get_on(self, node: AgentNode, worker: Worker) -> None:
        """It does something now and then, and its agent says so."""
        if worker.stage == "opening" and not worker.stopping:
            self.happened["a slow preparation gets on"] += 1
            self.step_agent(node, agents.WorkerEventReceived(worker.unit, PrepareProgress(worker.assignment)))
            self.on(node, 0.7, lambda: self._get_on(node, worker))

    def _ready(self, node: AgentNode, worker: Worker) -> None:
        if worker.stage == "opening":
            worker.stage = "ready"
            if "worker fails" in self.faults and not self.healed and self.rng.random() < 0.1:
                self.on(node, self.rng.uniform(0.01, 1.0), lambda: self._end(node, worker, "failed"))
            self.step_agent(node, agents.WorkerEventReceived(worker.unit, Prepared(worker.assignment)))

    def _take(self, node: AgentNode, worker: Worker, tries: int) -> None:
        """Take over the progress row; a locked one is waited for, then its holder is killed."""
        if worker.stage != "taking" or worker.stopping:
            return
        worker.take = take = worker.take + 1
        self.ask(
            worker,
            "target",
            self.rng.uniform(0.01, 0.2),
            lambda: self.target.take_over(worker, take, kill=tries >= 5),
            lambda answer: self._took(node, worker, answer, tries),
        )

    def _took(self, node: AgentNode, worker: Worker, answer: tuple[str, int] | None, tries: int) -> None:
        if worker.stage != "taking" or worker.stopping:
            return
        if answer is None:
            self._retake(node, worker, tries)
        elif answer[0] == "busy":
            self.on(node, 0.2, lambda: self._take(node, worker, tries + 1))
        elif answer[0] == "fenced":
            self._end(node, worker, "fenced")
        else:
            worker.stage, worker.offset, worker.unknown = "writing", answer[1], 0
            worker.connection = self.target.connections
            self._apply(node, worker)

    def _retake(self, node: AgentNode, worker: Worker, tries: int = 0) -> None:
        """It is unknown what the target did: the worker connects anew, and reads the row. It gives up after
        some tries."""
        worker.unknown += 1
        if worker.unknown > 5:
            self._end(node, worker, "failed")
            return
        worker.stage = "taking"
        self.on(node, self.rng.uniform(0.1, 0.5), lambda: self._take(node, worker, tries))

    def _claim(self, node: AgentNode, worker: Worker) -> None:
        """A capture worker's start: claim a gen, define under it, go on from what the topic holds before
        that."""
        topic = self.captured[worker.unit]

        def claimed(gen: int | None) -> None:
            if worker.stage != "taking" or worker.stopping:
                return
            if not gen:
                self._end(node, worker, "failed" if gen is None else "fenced")
                return
            worker.gen = gen
            self.ask(worker, "kafka", self._kafka(), lambda: topic.define(gen), defined)

        def defined(offset: int | None) -> None:
            if worker.stage != "taking" or worker.stopping:
                return
            if offset is None:
                self._end(node, worker, "failed")
                return
            worker.stage, worker.offset = "writing", offset
            self._capture(node, worker)

        self.ask(worker, "kafka", self._kafka(), lambda: topic.claim(worker.assignment) or 0, claimed)

    def _capture(self, node: AgentNode, worker: Worker) -> None:
        """Send what is new in the log. Once sent it arrives, unless the process dies before."""
        if worker.stage != "writing" or worker.stopping:
            return
        if "worker fails" in self.faults and not self.healed and self.rng.random() < 0.01:
            self._end(node, worker, "failed")
            return
        worker.transaction = sent = Transaction(worker, worker.offset, self.heads[worker.unit])
        self.ask(
            worker,
            "kafka",
            self._kafka(),
            lambda: self._arrived(worker, sent),
            lambda taken: self._produced(node, worker, sent, taken),
        )

    def _orphan(self, worker: Worker) -> None:
        """A capture process of its own that was paused when its agent died: it does one more thing before it
        sees that."""
        topic, sent = self.captured[worker.unit], worker.transaction
        if worker.gen == 0:
            worker.gen = topic.claim(worker.assignment) or 0
            if worker.gen:
                topic.define(worker.gen)
        elif worker.stage == "writing" and (sent is None or not sent.open):
            topic.append(worker.assignment, worker.gen, worker.offset, self.heads[worker.unit])

    def _kafka(self) -> float:
        """How long a request to Kafka takes."""
        slow = "slow target" in self.faults and not self.healed and self.rng.random() < 0.3
        return self.rng.uniform(0.5, 6.0) if slow else self.rng.uniform(0.005, 0.2)

    def _arrived(self, worker: Worker, sent: Transaction) -> bool:
        if sent.open:
            self.captured[worker.unit].append(worker.assignment, worker.gen, sent.start, sent.end)
            self.judge.captured(worker)
        return sent.open

    def _produced(self, node: AgentNode, worker: Worker, sent: Transaction, taken: bool | None) -> None:
        worker.transaction = None
        if worker.stage == "ended":
            return  # it failed meanwhile
        if worker.stopping:
            self._end(node, worker, None)
        elif not taken:
            self._end(node, worker, "failed")
        else:
            self._went_on(node, worker, sent)

    def _apply(self, node: AgentNode, worker: Worker) -> None:
        if worker.stage != "writing" or worker.stopping:
            return
        if "worker fails" in self.faults and not self.healed and self.rng.random() < 0.01:
            self._end(node, worker, "failed")
            return
        reached = self.up("target") and not {(node.name, "target"), ("target", node.name)} & self.cuts
        broken = worker.connection != self.target.connections and not self.options.believing
        if not reached or broken:
            self._retake(node, worker)
            return
        transaction = self.target.begin(worker, max(worker.offset, self.heads[worker.unit]))
        if transaction is None:
            self._end(node, worker, "fenced")
            return
        worker.transaction = transaction
        slow = "slow target" in self.faults and not self.healed and self.rng.random() < 0.1
        work = self.rng.uniform(1.0, 4.0) if slow else self.rng.uniform(0.01, 0.15)
        self.on(node, work, lambda: self._send_commit(node, worker, transaction))

    def _send_commit(self, node: AgentNode, worker: Worker, transaction: Transaction) -> None:
        self.ask(
            worker,
            "target",
            self.rng.uniform(0.001, 0.05 if self.healed else 0.3),
            lambda: self._landed(transaction),
            lambda answer: self._answered(node, worker, transaction, answer),
        )

    def _landed(self, transaction: Transaction) -> str:
        """The commit, or the statement before it, is at the target: committed, aborted (by a kill), or
        deadlock."""
        unlucky = "deadlock" in self.faults and not self.healed and self.rng.random() < 0.04
        if unlucky and transaction.open:
            self.happened["deadlock"] += 1
            self.target.abort(transaction)
            return "deadlock"
        if not self.target.commit(transaction):
            return "aborted"
        self.judge.wrote(transaction)
        return "committed"

    def _answered(
        self, node: AgentNode, worker: Worker, transaction: Transaction, answer: str | None
    ) -> None:
        worker.transaction = None
        if worker.stage == "ended":
            return  # it failed meanwhile
        if worker.stopping:
            self._end(node, worker, None)
        elif answer == "committed":
            self._went_on(node, worker, transaction)
        elif answer == "deadlock":
            self.on(node, self.rng.uniform(0.05, 0.3), lambda: self._apply(node, worker))
        else:
            self.happened["outcome unknown to a live worker"] += answer is None
            if self.options.believing:
                worker.offset = transaction.end
                self._apply(node, worker)
            else:
                self._retake(node, worker)

    def _went_on(self, node: AgentNode, worker: Worker, done: Transaction) -> None:
        worker.offset = done.end
        mark = self._mark(worker)
        self.step_agent(
            node, agents.WorkerEventReceived(worker.unit, UnitProgressed(worker.assignment, mark, 10))
        )
        again = self._capture if worker.unit in CAPTURES else self._apply
        self.on(node, self.rng.uniform(0.2, 0.5), lambda: again(node, worker))

    def _mark(self, worker: Worker) -> UnitProgress:
        return UnitProgress(worker.offset, self.heads[worker.unit])

    def _stop(self, node: AgentNode, worker: Worker) -> None:
        worker.stopping = True
        if worker.transaction is None:
            self.on(node, self.rng.uniform(0.01, 0.2), lambda: self._end(node, worker, None))
        elif self.options.early_stop:
            self._say_ended(node, worker, None)

    def _end(self, node: AgentNode, worker: Worker, error: str | None) -> None:
        if worker.stage == "ended":
            return
        mark = self._mark(worker) if worker.stage == "writing" else None
        worker.stage = "ended"
        if error is None or not self.options.swallow:
            self._say_ended(node, worker, error, mark)

    def _say_ended(
        self, node: AgentNode, worker: Worker, error: str | None, mark: UnitProgress | None = None
    ) -> None:
        self.step_agent(
            node, agents.WorkerEventReceived(worker.unit, WorkerEnded(worker.assignment, mark, error))
        )
