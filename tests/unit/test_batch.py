"""The batch system, semantics one by one (research on TiKV's batch-system), and under stress."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.batch import (
    BatchConfig,
    BatchSystem,
    FsmState,
    HandleResult,
    KeepMachine,
    Mailbox,
    MailboxClosedError,
    MailboxFullError,
    NoMailboxError,
    ReleaseMachine,
    Router,
)
from coordinator.batch.poller import Poller


class Counting:
    """A machine that counts; `inside` proves that no two threads are ever in it."""

    def __init__(self) -> None:
        self.total = 0
        self.stopped = False
        self.inside = False
        self.handled: list[Any] = []

    def is_stopped(self) -> bool:
        return self.stopped


Box = Mailbox[Counting, int]
System = BatchSystem[Counting, int]


class Handler:
    """Drains up to `most` messages a turn and writes down what it was called for."""

    def __init__(
        self, log: list[str], most: int = 64, result: Callable[[Box], HandleResult] | None = None
    ) -> None:
        self.log, self.most, self.result = log, most, result
        self.ends: list[int] = []

    def handle_control(self, fsm: Counting, mailbox: Mailbox[Any, Any]) -> int | None:
        for message in mailbox.drain_messages(self.most):
            fsm.handled.append(message)
            self.log.append(f"control {message}")
        return len(mailbox)

    def handle_normal(self, fsm: Counting, mailbox: Box) -> HandleResult:
        assert not fsm.inside, "two pollers in one machine"
        fsm.inside = True
        self.log.append(f"normal {mailbox.address}")
        taken = mailbox.drain_messages(self.most)
        fsm.total += sum(1 for message in taken if message >= 0)
        fsm.handled += taken
        fsm.stopped = fsm.stopped or any(message < 0 for message in taken)
        fsm.inside = False
        if self.result is not None:
            return self.result(mailbox)
        return ReleaseMachine(0) if len(taken) < self.most else KeepMachine()

    def end_round(self, batch: list[Counting]) -> None:
        self.ends.append(len(batch))
        self.log.append(f"end {len(batch)}")


def by_hand(
    result: Callable[[Box], HandleResult] | None = None, now: Callable[[], float] = lambda: 0.0, **config: Any
) -> tuple[System, Poller[Counting, int], list[str], Counting]:
    log: list[str] = []
    control = Counting()
    system: System = BatchSystem(
        control, lambda _: Handler(log, result=result), BatchConfig(**config), now=now
    )
    return system, system.make_poller(0), log, control


def test_message_to_an_idle_machine_schedules_it_once() -> None:
    system, poller, log, _ = by_hand()
    machine = Counting()
    box = system.router.register_machine("a", machine)
    assert box.state is FsmState.IDLE
    for _ in range(3):
        system.router.send("a", 1)
    assert box.state is FsmState.NOTIFIED
    assert len(system.ready) == 1
    poller.run_round()
    assert machine.total == 3
    assert box.state is FsmState.IDLE
    assert log == ["normal a", "end 1"]


@pytest.mark.parametrize("send", ["try_send", "force_send"])
def test_a_message_is_in_the_box_before_the_machine_is_woken(send: str) -> None:
    """The quickest poller there can be handles and releases the machine within `notify`: it must have found
    the message."""
    found: list[int] = []

    def at_once(mailbox: Box, fsm: Counting) -> None:
        found.extend(mailbox.drain_messages(10))
        assert mailbox.release_machine(fsm, 0) is None

    box: Box = Mailbox("a", Counting(), 10, at_once)
    getattr(box, send)(7)
    assert (found, len(box), box.state) == ([7], 0, FsmState.IDLE)


def test_missing_full_forced_and_closed() -> None:
    system, _, _, _ = by_hand(capacity=2)
    with pytest.raises(NoMailboxError):
        system.router.send("a", 1)
    box = system.router.register_machine("a", Counting())
    system.router.send("a", 1)
    system.router.send("a", 2)
    with pytest.raises(MailboxFullError):
        system.router.send("a", 3)
    assert box.full_count == 1
    system.router.force_send("a", 4)
    assert system.router.close_mailbox("a") == [1, 2, 4]
    with pytest.raises(MailboxClosedError):
        box.try_send(5)
    with pytest.raises(NoMailboxError):
        system.router.force_send("a", 5)


def test_register_again_closes_the_old_mailbox() -> None:
    system, poller, _, _ = by_hand()
    old, new = Counting(), Counting()
    first = system.router.register_machine("a", old)
    first.try_send(1)
    system.router.register_machine("a", new)
    assert first.closed
    system.router.send("a", 2)
    poller.run_round()
    assert (old.handled, new.handled) == ([], [2])


def test_message_between_last_look_and_release_is_not_lost() -> None:
    """Release without a second look at the queue length would leave the machine idle with a message."""
    system, poller, _, _ = by_hand()
    machine = Counting()
    box = system.router.register_machine("a", machine)
    handler = Handler([])
    late = iter([7])
    original = handler.handle_normal

    def and_then_a_message(fsm: Counting, mailbox: Box) -> HandleResult:
        result = original(fsm, mailbox)
        for message in late:
            mailbox.try_send(message)  # notify does nothing: the machine is with us
        return result

    handler.handle_normal = and_then_a_message  # type: ignore[method-assign]
    poller._handler = handler
    system.router.send("a", 1)
    poller.run_round()
    assert len(box) == 1
    assert box.state is FsmState.NOTIFIED
    poller.run_round()
    assert machine.handled == [1, 7]
    assert box.state is FsmState.IDLE


def test_a_machine_released_with_messages_it_has_seen_sleeps_until_another_one_comes() -> None:
    """`seen` is what it left on purpose: only what came meanwhile keeps it in the batch."""
    system, poller, _, _ = by_hand()
    machine = Counting()
    box = system.router.register_machine("a", machine)
    poller._handler = Handler([], most=1, result=lambda mailbox: ReleaseMachine(seen=1))
    for message in (1, 2):
        system.router.send("a", message)
    poller.run_round()
    assert (machine.handled, len(box), box.state) == ([1], 1, FsmState.IDLE)
    poller.run_round()
    assert machine.handled == [1], "nobody has woken it"
    for message in (3, 4):
        system.router.send("a", message)
    poller.run_round()
    assert (machine.handled, box.state) == ([1, 2], FsmState.NOTIFIED), "two wait and one was seen"
    poller.run_round()
    assert (machine.handled, box.state) == ([1, 2, 3], FsmState.IDLE)


def test_release_of_a_closed_mailbox_ends_the_machine() -> None:
    """The mailbox is closed between the poller's look and its release: no poller gets the machine back, and
    the mailbox does not keep it."""
    box: Box = Mailbox("a", Counting(), 10, lambda mailbox, fsm: None)
    box.try_send(1)
    assert box.close() == [1]
    assert box.release_machine(Counting(), 1) is None
    assert (box.state, box._fsm) == (FsmState.DROP, None)


def test_a_machine_in_two_hands_or_in_none_is_an_error() -> None:
    machine = Counting()
    box: Box = Mailbox("a", machine, 10, lambda mailbox, fsm: None)
    with pytest.raises(AssertionError, match="released twice"):
        box.release_machine(machine, 0)  # nobody has taken it
    assert box.take_machine() is machine
    assert box.take_machine() is None
    assert box.release_machine(machine, 0) is None
    with pytest.raises(AssertionError, match="released twice"):
        box.release_machine(machine, 0)
    box._fsm = None
    with pytest.raises(AssertionError, match="idle without its machine"):
        box.take_machine()


def test_control_is_handled_first_and_stops_filling() -> None:
    system, poller, log, control = by_hand()
    for name in "abc":
        system.router.register_machine(name, Counting())
        system.router.send(name, 1)
    system.router.send_control("hello")
    poller.run_round()
    assert log[:2] == ["control hello", "normal a"]
    assert control.handled == ["hello"]

    def interrupting(mailbox: Box) -> HandleResult:
        system.router.send_control("now")
        return ReleaseMachine(0)

    handler = Handler(log, result=interrupting)
    poller._handler = handler
    log.clear()
    for name in "abc":
        system.router.send(name, 1)
    poller.run_round()
    assert log == ["normal a", "end 1"]
    poller.run_round()
    assert log[2] == "control now"


class OneByOne(Handler):
    """Its control machine takes all messages at once and handles one a round: what is left is not in the
    mailbox."""

    left: tuple[Any, ...] = ()

    def handle_control(self, fsm: Counting, mailbox: Mailbox[Any, Any]) -> int | None:
        now, *left = (*self.left, *mailbox.drain_messages(64))
        self.left = tuple(left)
        fsm.handled.append(now)
        self.log.append(f"control {now}")
        return None if left else 0


def test_a_control_machine_with_more_to_do_stays_with_its_poller() -> None:
    system, poller, log, control = by_hand()
    poller._handler = OneByOne(log, most=1)
    for message in (1, 2):
        system.router.send_control(message)
    poller.run_round()
    assert control.handled == [1]
    assert (len(system.ready), system.router.control.state) == (0, FsmState.NOTIFIED)
    poller.run_round()
    assert control.handled == [1, 2]
    assert (len(system.ready), system.router.control.state) == (0, FsmState.IDLE)


def test_a_poller_blocks_only_without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines in the queue, and ones that it holds, are worked on first."""
    system, poller, log, _ = by_hand()
    poller._handler = OneByOne(log, most=1)

    def wait() -> bool:
        log.append("wait")
        return False

    monkeypatch.setattr(system.ready, "wait_for_work", wait)
    system.router.register_machine("a", Counting())
    system.router.send("a", 1)
    for message in (1, 2, 3):
        system.router.send_control(message)
    poller.run()
    worked = [each for each in log if each.startswith(("control", "normal"))]
    assert worked == ["control 1", "normal a", "control 2", "normal a", "control 3"]
    assert log[-1] == "wait"
    assert log.count("wait") == 1


def test_a_stopped_control_machine_is_removed_only_when_its_mailbox_is_empty() -> None:
    system, poller, log, control = by_hand()
    poller._handler = Handler(log, most=1)
    control.stopped = True
    for message in (1, 2):
        system.router.send_control(message)
    box = system.router.control
    poller.run_round()
    assert (control.handled, box.closed) == ([1], False)
    poller.run_round()
    assert (control.handled, box.closed) == ([1, 2], True)
    log.clear()
    poller.run_round()
    assert log == ["end 0"], "it is gone"


def test_what_a_poller_holds_at_its_end_goes_back_to_the_queue() -> None:
    system, poller, log, control = by_hand()
    machine = Counting()

    class Last(OneByOne):
        def end_round(self, batch: list[Counting]) -> None:
            system.ready.shut_down()

    poller._handler = Last(log, most=1, result=lambda mailbox: KeepMachine())
    box = system.router.register_machine("a", machine)
    system.router.send("a", 1)
    for message in (1, 2):
        system.router.send_control(message)
    poller.run()
    assert system.ready.take_task() == (box, machine)
    assert system.ready.take_control() == (system.router.control, control)
    assert len(system.ready) == 0


def test_skip_end_releases_before_end() -> None:
    system, poller, log, _ = by_hand(result=lambda _: ReleaseMachine(0, skip_end=True))
    system.router.register_machine("a", Counting())
    system.router.send("a", 1)
    poller.run_round()
    assert log == ["normal a", "end 0"]


def test_kept_machine_stays_and_batch_may_exceed_a_smaller_limit() -> None:
    system, poller, log, _ = by_hand(result=lambda _: KeepMachine(), max_batch_size=4)
    for name in "abcdef":
        system.router.register_machine(name, Counting())
        system.router.send(name, 1)
    poller.run_round()
    assert log.count("end 4") == 1
    system.config.max_batch_size = 1  # changed while it runs
    poller.run_round()
    assert log[-1] == "end 4"


def test_stopped_machine_is_removed_only_when_its_mailbox_is_empty() -> None:
    system, poller, _, _ = by_hand()
    machine = Counting()
    box = system.router.register_machine("a", machine)
    poller._handler = Handler([], most=1)
    system.router.send("a", -1)
    system.router.send("a", 5)
    poller.run_round()
    assert machine.stopped
    assert not box.closed
    poller.run_round()
    assert machine.handled == [-1, 5]
    assert box.closed
    assert len(system.router) == 0


def test_hot_machines_go_back_every_second_time() -> None:
    clock = [0.0]
    system, poller, _, _ = by_hand(result=lambda _: KeepMachine(), now=lambda: clock[0], reschedule_after=5.0)
    for name in "abcd":
        system.router.register_machine(name, Counting())
        system.router.send(name, 1)
    poller.run_round()
    assert len(system.ready) == 0
    clock[0] = 6.0
    poller.run_round()
    assert len(system.ready) == 2


def test_machines_receive_their_messages_and_shutdown_refuses_others() -> None:
    system, poller, log, _ = by_hand()
    machines = {name: Counting() for name in "abc"}
    boxes = [system.router.register_machine(name, machine) for name, machine in machines.items()]
    for name in machines:
        system.router.force_send(name, 1)
    system.router.send_control(1)
    poller.run_round()
    assert [machine.total for machine in machines.values()] == [1, 1, 1]
    assert "control 1" in log
    system.router.send("a", 2)
    system.router.shut_down()
    with pytest.raises(MailboxClosedError):
        system.router.register_machine("d", Counting())
    system.router.force_send("a", 1)  # a no-op, like everything on the way down
    system.router.send_control("a no-op as well")
    assert len(system.router) == 0
    for box in (*boxes, system.router.control):
        assert (box.closed, box.state, len(box)) == (True, FsmState.DROP, 0)
        with pytest.raises(MailboxClosedError):
            box.force_send(1)
    poller.run_round()
    assert machines["a"].total == 1, "a scheduled machine of a closed mailbox is not handled"


def test_close_while_a_poller_holds_the_machine() -> None:
    system, poller, _, _ = by_hand()

    def closing(mailbox: Box) -> HandleResult:
        system.router.close_mailbox("a")
        return ReleaseMachine(0)

    poller._handler = Handler([], result=closing)
    system.router.register_machine("a", Counting())
    system.router.send("a", 1)
    poller.run_round()
    assert len(system.router) == 0
    assert len(system.ready) == 0


def test_error_of_a_handler_ends_the_system_and_is_raised() -> None:
    class Failing(Handler):
        def handle_normal(self, fsm: Counting, mailbox: Box) -> HandleResult:
            raise RuntimeError("boom")

    system: System = BatchSystem(Counting(), lambda _: Failing([]))
    system.start()
    system.router.register_machine("a", Counting())
    system.router.send("a", 1)
    for thread in system._threads:
        thread.join(10)
    with pytest.raises(RuntimeError, match="boom"):
        system.close()


@pytest.mark.parametrize("machines", [50, 100_000])
def test_stress_every_message_handled_once_by_one_poller_at_a_time(machines: int) -> None:
    """Senders in two threads, four pollers, small batches and turns: nothing lost, nothing twice, order
    kept."""
    log: deque[str] = deque(maxlen=1)
    fsms = [Counting() for _ in range(machines)]
    per_machine = 200 if machines < 1000 else 2
    config = BatchConfig(pollers=4, max_batch_size=8, capacity=10**6, reschedule_after=0.0)
    with BatchSystem[Counting, int](Counting(), lambda _: Handler(log, most=3), config) as system:  # type: ignore[arg-type]
        for number, fsm in enumerate(fsms):
            system.router.register_machine(number, fsm)

        def send(first: int) -> None:
            for message in range(per_machine):
                for number in range(first, machines, 2):
                    system.router.send(number, message)

        senders = [threading.Thread(target=send, args=(first,)) for first in range(2)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        done = threading.Event()
        while not all(fsm.total == per_machine for fsm in fsms):
            assert system.error is None
            done.wait(0.01)
    expected = list(range(per_machine))
    assert all(fsm.handled == expected for fsm in fsms)


@given(st.lists(st.sampled_from(["send", "take", "release", "late", "close"]), max_size=40))
@settings(max_examples=200)
def test_mailbox_model(steps: list[str]) -> None:
    """Whatever the order of calls: while an open mailbox has a message, its machine is scheduled or held."""
    scheduled: list[tuple[Box, Counting]] = []
    box: Box = Mailbox("a", Counting(), 1000, lambda mailbox, fsm: scheduled.append((mailbox, fsm)))
    held: Counting | None = None
    counts: Counter[str] = Counter()
    for step in steps:
        counts[step] += 1
        if step in ("send", "late") and not box.closed:
            box.try_send(1)
        elif step == "take" and scheduled and held is None:
            held = scheduled.pop()[1]
        elif step == "release" and held is not None and not box.closed:
            box.drain_messages(100)
            if counts["release"] % 2:
                box.try_send(1)  # between the last look and the release
            held = box.release_machine(held, 0)
        elif step == "close":
            box.close()
        if not box.closed:
            owners = len(scheduled) + (held is not None) + (box.state is FsmState.IDLE)
            assert owners == 1
            assert len(box) == 0 or box.state is FsmState.NOTIFIED


def test_router_is_what_it_says() -> None:
    system, _, _, _ = by_hand()
    assert isinstance(system.router, Router)
    system.router.register_machine(1, Counting)
    assert list(system.router) == [1]
