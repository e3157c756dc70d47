"""The threads of a slot: who is applied while another unit's statement hangs, and what ends when."""

from __future__ import annotations

import pickle
import queue
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from consumer.attempt.reports import Report
from consumer.slots import report_outbox
from consumer.slots import runner as module
from consumer.slots.faults import FAULT_EXIT_CODE
from consumer.slots.messages import (
    CloseSlot,
    ForgetPipeline,
    PipelineRefused,
    ReleaseUnit,
    ServerUnreachable,
    ServeUnit,
    SlotAnswer,
    SlotReports,
    UnitReleased,
    UsePipeline,
)
from consumer.slots.report_outbox import ReportOutbox
from consumer.slots.runner import MAX_THREADS, SlotRunner
from consumer.slots.schedule import Turn
from schemas.config.errors import ConfigErrors, ConfigProblem
from tests.kits.waiting import until

LONG_S = 60.0
"""A hang's end."""


class Connections:
    def __init__(self) -> None:
        self.target, self.closed = "", threading.Event()

    def use_target(self, target: str) -> None:
        self.target = target

    def close(self) -> None:
        self.closed.set()


class Pipeline:
    """A pipeline whose attempts apply all that is there; `hang`: topics whose attempts wait for `go`."""

    made: list[Pipeline]

    def __init__(
        self, settings: Any, *, report: Any, take: Any, lose: Any, others_wait: Any, on_unreachable: Any
    ) -> None:
        self.settings, self.report, self.take, self.lose = settings, report, take, lose
        self.others_wait, self.on_unreachable = others_wait, on_unreachable
        self.hang: set[str] = set()
        self.running: set[str] = set()
        self.go = threading.Event()
        self.targets: list[str] = []
        self.connections: list[Connections] = []
        self.forgotten: list[str] = []
        self.followed: queue.SimpleQueue[tuple[str, int, int]] = queue.SimpleQueue()
        self.reader = SimpleNamespace(
            follow_topic=lambda *call: self.followed.put(call), leave_topic=lambda _topic: None
        )
        self.closed = threading.Event()
        Pipeline.made.append(self)

    def use_settings(self, settings: Any) -> None:
        self.settings = settings

    def make_connections(self, _number: int) -> Connections:
        self.connections.append(Connections())
        return self.connections[-1]

    def forget_unit(self, serve: ServeUnit) -> None:
        self.forgotten.append(serve.topic)

    def run_attempt(self, turn: Turn, connections: Connections) -> tuple[Report, int]:
        serve = turn.unit.serve
        self.targets.append(connections.target)
        self.running.add(serve.topic)
        if serve.topic in self.hang:
            assert self.go.wait(LONG_S)
        self.running.discard(serve.topic)
        last = turn.records[-1][0] if turn.records else serve.end - 1
        state = "behind" if serve.topic == "bad" else "ok"
        return Report(serve.topic, state, serve.epoch, last, applied=1), serve.end  # type: ignore[arg-type]

    def close(self) -> None:
        self.closed.set()


class Slot:
    def __init__(self) -> None:
        self.answers: queue.SimpleQueue[SlotAnswer] = queue.SimpleQueue()
        self.runner = SlotRunner(self.answers.put)
        self.use("first password")

    def use(self, target: str, run: str = "r") -> None:
        settings = SimpleNamespace(target=target, commit_every=0.0)
        self.runner.handle_command(UsePipeline(run, pickle.dumps(settings)))

    @property
    def pipeline(self) -> Pipeline:
        return Pipeline.made[0]

    def serve(self, topic: str, *, left: int = 1) -> None:
        self.runner.handle_command(ServeUnit("r", topic, "s", 1, "id", 7, 9, 10 + left))

    def next(self, kind: type[SlotAnswer]) -> Any:
        """Return the next answer of this kind."""
        while True:
            answer = self.answers.get(timeout=LONG_S)
            if isinstance(answer, kind):
                return answer

    def follow(self, topic: str, offset: int) -> None:
        """Bring a record of a followed topic."""
        followed, _, number = self.pipeline.followed.get(timeout=LONG_S)
        assert followed == topic
        self.pipeline.take(topic, number, [(offset, b"x")])


@pytest.fixture
def slot(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slot]:
    Pipeline.made = []
    monkeypatch.setattr(module, "ServedPipeline", Pipeline)
    monkeypatch.setattr(module, "decode_pipeline", lambda raw, _scratch: pickle.loads(raw))
    made = Slot()
    yield made
    made.pipeline.go.set()
    made.runner.close()


def test_a_unit_is_applied_reported_and_released(slot: Slot) -> None:
    slot.serve("t", left=3)
    report = slot.next(SlotReports)
    assert (report.run, report.reports[0].offset, report.reports[0].left) == ("r", 12, 0)
    slot.follow("t", 13)
    assert slot.next(SlotReports).reports[0].offset == 13
    slot.runner.handle_command(ReleaseUnit("r", "t"))
    assert slot.next(UnitReleased) == UnitReleased("r", "t", 7, 13, 14)


def test_units_are_applied_while_the_statements_of_others_hang(slot: Slot) -> None:
    """A target may keep one statement waiting for many seconds, and lanes wait for their thread."""
    slow = [f"slow{number}" for number in range(MAX_THREADS - 1)]
    slot.pipeline.hang |= set(slow)
    for topic in slow:
        slot.serve(topic)
    until(lambda: slot.pipeline.running == set(slow), what="a thread for each")
    slot.serve("quick")
    assert slot.next(SlotReports).reports[0].topic == "quick"
    slot.pipeline.go.set()
    found: set[str] = set()
    while found != set(slow):
        found |= {report.topic for report in slot.next(SlotReports).reports}


def test_a_running_attempt_ends_before_its_unit_is_released(slot: Slot) -> None:
    slot.pipeline.hang.add("t")
    slot.serve("t")
    until(lambda: "t" in slot.pipeline.running, what="the attempt")
    slot.runner.handle_command(ReleaseUnit("r", "t"))
    with pytest.raises(queue.Empty):
        slot.answers.get(timeout=0.1)
    slot.pipeline.go.set()
    assert slot.next(SlotReports).reports[0].offset == 10, "what it has done is known first"
    assert slot.next(UnitReleased).offset == 10
    until(lambda: slot.pipeline.forgotten == ["t"], what="its definition forgotten")


def test_a_failed_unit_is_released_as_failed_after_its_report(slot: Slot) -> None:
    slot.serve("bad")
    assert slot.answers.get(timeout=LONG_S).reports[0].state == "behind"  # type: ignore[union-attr]
    released = slot.answers.get(timeout=LONG_S)
    assert isinstance(released, UnitReleased)
    assert released.failed


def test_a_pipeline_is_closed_when_its_last_attempt_has_ended(slot: Slot) -> None:
    """Its units are fenced in the target, which does not wait for a statement under way."""
    slot.pipeline.hang.add("t")
    slot.serve("t")
    until(lambda: "t" in slot.pipeline.running, what="the attempt")
    slot.runner.handle_command(ReleaseUnit("r", "t"))
    slot.runner.handle_command(ForgetPipeline("r"))
    assert not slot.pipeline.closed.wait(0.1)
    slot.pipeline.go.set()
    assert slot.pipeline.closed.wait(LONG_S)
    assert slot.pipeline.connections[0].closed.wait(LONG_S)
    slot.runner.handle_command(ForgetPipeline("another"))


def test_an_idle_pipeline_is_closed_at_once(slot: Slot) -> None:
    slot.runner.handle_command(ForgetPipeline("r"))
    assert slot.pipeline.closed.is_set()


def test_new_secrets_are_used_for_the_next_attempt(slot: Slot) -> None:
    slot.serve("t")
    slot.next(SlotReports)
    slot.use("second password")
    slot.follow("t", 11)
    slot.next(SlotReports)
    assert slot.pipeline.targets == ["first password", "second password"]
    assert len(Pipeline.made) == 1, "definitions are kept"


def test_records_that_cannot_be_brought_are_read_by_the_unit(slot: Slot) -> None:
    slot.serve("t")
    slot.next(SlotReports)
    _, _, number = slot.pipeline.followed.get(timeout=LONG_S)
    slot.pipeline.lose("t", number)
    assert slot.next(SlotReports).reports[0].topic == "t", "an attempt finds out why"
    _, offset, again = slot.pipeline.followed.get(timeout=LONG_S)
    assert (offset, again > number) == (11, True)


def test_waits_for_locks_are_reported_at_once(slot: Slot) -> None:
    waiting = Report("t", "waiting", 7, -1, message="seen")
    slot.pipeline.report(waiting)
    assert slot.next(SlotReports).reports == [waiting]


def test_the_end_waits_for_attempts_and_releases_everything(slot: Slot) -> None:
    slot.pipeline.hang.add("t")
    for topic in ("t", "u"):
        slot.serve(topic)
    until(lambda: "t" in slot.pipeline.running, what="the attempt")
    slot.runner.handle_command(CloseSlot())
    closing = threading.Thread(target=slot.runner.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    slot.pipeline.go.set()
    closing.join(LONG_S)
    assert {slot.next(UnitReleased).topic for _ in range(2)} == {"t", "u"}
    assert slot.pipeline.closed.is_set()
    assert all(each.closed.is_set() for each in slot.pipeline.connections)


def test_a_pipeline_is_refused_until_its_secrets_are_here(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_raw: bytes, _scratch: object) -> None:
        problem = ConfigProblem(3, "targets.hq.password_file", "cannot read /hq: No such file", "give a file")
        raise ConfigErrors("rowlock.yaml", [problem])

    def serve() -> None:
        slot.runner.handle_command(ServeUnit("q", "t", "s", 1, "id", 7, 9, 11, trial=True))

    decode = module.decode_pipeline
    monkeypatch.setattr(module, "decode_pipeline", fail)
    slot.use("password", run="q")
    assert slot.next(PipelineRefused) == PipelineRefused(
        "q",
        f"the executor on {socket.gethostname()} lacks a secret: rowlock.yaml:3: targets.hq.password_file: "
        "cannot read /hq: No such file; give a file",
    )
    serve()
    assert slot.answers.get(timeout=LONG_S) == UnitReleased("q", "t", 7, 9, 11, trial=True)
    slot.serve("u")
    assert slot.next(SlotReports).reports[0].topic == "u", "the other pipeline goes on"
    monkeypatch.setattr(module, "decode_pipeline", decode)
    slot.use("password", run="q")
    serve()
    assert slot.next(SlotReports).run == "q"


def test_a_pipeline_continues_with_its_old_secrets_if_the_new_ones_are_missing(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_raw: bytes, _scratch: object) -> None:
        raise ConfigErrors("rowlock.yaml", [])

    monkeypatch.setattr(module, "decode_pipeline", fail)
    slot.use("second password")
    assert slot.next(PipelineRefused).run == "r"
    slot.serve("t")
    slot.next(SlotReports)
    assert slot.pipeline.targets == ["first password"]


def test_a_server_that_cannot_be_reached_is_reported(slot: Slot) -> None:
    slot.pipeline.on_unreachable("nothing answers")
    assert slot.next(ServerUnreachable) == ServerUnreachable("nothing answers")


def test_reports_that_come_fast_are_sent_together_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The apply process looks at all its units for each message."""
    monkeypatch.setattr(report_outbox, "SEND_INTERVAL_S", LONG_S)
    answers: queue.SimpleQueue[SlotAnswer] = queue.SimpleQueue()
    outbox = ReportOutbox(answers.put, "slot")
    reports = [Report("t", "ok", 7, offset) for offset in range(4)]
    for report in reports:
        outbox.put_report("r", report)
    assert answers.get(timeout=LONG_S) == SlotReports("r", reports[:1]), "the first one at once"
    assert answers.empty()
    outbox.put_release(UnitReleased("r", "t", 7, 3, 4))
    assert answers.get(timeout=LONG_S) == SlotReports("r", reports[1:])
    assert answers.get(timeout=LONG_S) == UnitReleased("r", "t", 7, 3, 4)
    outbox.put_report("r", reports[0])
    outbox.close()
    assert answers.get(timeout=LONG_S) == SlotReports("r", reports[:1]), "also at the end"


def test_a_report_that_waits_is_sent_though_no_other_follows() -> None:
    answers: queue.SimpleQueue[SlotAnswer] = queue.SimpleQueue()
    outbox = ReportOutbox(answers.put, "slot")
    for offset in (1, 2):
        outbox.put_report("r", Report("t", "ok", 7, offset))
    found: list[Report] = []
    while len(found) < 2:
        answer = answers.get(timeout=LONG_S)
        assert isinstance(answer, SlotReports)
        found += answer.reports
    assert [report.offset for report in found] == [1, 2]
    outbox.close()


def test_threads_that_are_not_needed_any_more_end_with_their_connections(slot: Slot) -> None:
    slow = [f"slow{number}" for number in range(MAX_THREADS)]
    slot.pipeline.hang |= set(slow)
    for topic in slow:
        slot.serve(topic)
    until(lambda: slot.pipeline.running == set(slow), what="a thread for each")
    slot.pipeline.go.set()
    until(lambda: sum(each.closed.is_set() for each in slot.pipeline.connections) >= MAX_THREADS - 2,
          what="the end of surplus threads")  # fmt: skip
    slot.serve("t")
    found: set[str] = set()
    while "t" not in found:
        found |= {report.topic for report in slot.next(SlotReports).reports}


def test_a_far_time_is_waited_for_without_spinning(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    found = slot.runner._schedule.find_next_due

    def look() -> float | None:
        looks.append(0.0)
        return found()

    monkeypatch.setattr(slot.runner._schedule, "find_next_due", look)
    monkeypatch.setattr(
        slot.pipeline, "run_attempt",
        lambda turn, _connections: (Report("t", "ok", 7, turn.unit.end - 1, trial_in_s=600.0), 0),
    )  # fmt: skip
    slot.serve("t")
    slot.next(SlotReports)
    threading.Event().wait(0.3)
    assert len(looks) < 40


def test_a_unit_that_is_due_by_time_gets_a_thread_while_others_hang(slot: Slot) -> None:
    for topic in ("slow1", "slow2"):
        slot.pipeline.hang.add(topic)
    slot.serve("t")
    slot.next(SlotReports)
    _, _, number = slot.pipeline.followed.get(timeout=LONG_S)
    for topic in ("slow1", "slow2"):
        slot.serve(topic)
    until(lambda: slot.pipeline.running == {"slow1", "slow2"}, what="both threads blocked")
    slot.pipeline.lose("t", number)
    assert slot.next(SlotReports).reports[0].topic == "t"


def test_a_unit_whose_topic_is_lost_while_it_waits_for_its_turn_is_applied(slot: Slot) -> None:
    """It is due a moment later than its turn comes."""
    slow = [f"slow{number}" for number in range(MAX_THREADS)]
    slot.serve("t")
    slot.next(SlotReports)
    _, _, number = slot.pipeline.followed.get(timeout=LONG_S)
    slot.pipeline.hang |= set(slow)
    for topic in slow:
        slot.serve(topic)
    until(lambda: slot.pipeline.running == set(slow), what="all threads blocked")
    slot.pipeline.take("t", number, [(11, b"x")])
    slot.pipeline.lose("t", number)
    slot.pipeline.go.set()
    found: list[Report] = []
    while not any(report.topic == "t" for report in found):
        found += slot.next(SlotReports).reports


def test_a_trial_is_due_in_time_although_threads_end(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [f"slow{number}" for number in range(MAX_THREADS)]
    slot.pipeline.hang |= set(slow)
    for topic in slow:
        slot.serve(topic)
    until(lambda: slot.pipeline.running == set(slow), what="all threads blocked")
    tried: list[str] = []
    whole = slot.pipeline.run_attempt

    def run(turn: Turn, connections: Any) -> tuple[Report, int]:
        report, end = whole(turn, connections)
        tried.append(report.topic)
        return msgspec.structs.replace(report, trial_in_s=0.0 if len(tried) > MAX_THREADS else 0.3), end

    monkeypatch.setattr(slot.pipeline, "run_attempt", run)
    slot.pipeline.go.set()
    began = time.monotonic()
    slot.serve("t")
    until(lambda: len(tried) > MAX_THREADS, what="a trial")
    assert time.monotonic() - began < 30


def test_a_unit_goes_on_while_an_attempt_under_its_former_fencing_token_hangs(slot: Slot) -> None:
    slot.pipeline.hang.add("t")
    slot.serve("t")
    until(lambda: "t" in slot.pipeline.running, what="the attempt")
    slot.pipeline.hang.clear()
    slot.runner.handle_command(ReleaseUnit("r", "t"))
    slot.runner.handle_command(ServeUnit("r", "t", "s", 1, "id", 8, 9, 11))
    assert slot.next(SlotReports).reports[0].epoch == 8
    slot.follow("t", 11)
    assert [(each.epoch, each.offset) for each in slot.next(SlotReports).reports] == [(8, 11)]
    slot.pipeline.go.set()
    assert slot.next(UnitReleased).epoch == 7
    (unit,) = slot.runner._schedule.units
    number = unit.follow_number
    assert number is not None, "the end of the former attempt does not leave the topic"
    slot.pipeline.take("t", number, [(12, b"x")])
    assert slot.next(SlotReports).reports[0].offset == 12


@pytest.mark.parametrize("call", ["take", "lose"])
def test_an_error_of_the_program_on_new_records_ends_the_process(
    slot: Slot, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The reader takes errors for those of Kafka, and would go on with a schedule in an unknown state."""
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    monkeypatch.setattr(slot.runner._schedule, "add_records", lambda *_: 1 // 0)
    monkeypatch.setattr(slot.runner._schedule, "lose_records", lambda *_: 1 // 0)
    with capture_logs():
        if call == "take":
            slot.pipeline.take("t", 1, [(9, b"x")])
        else:
            slot.pipeline.lose("t", 1)
    assert codes == [FAULT_EXIT_CODE]
