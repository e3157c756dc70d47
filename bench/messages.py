"""Messages a second through the batch system, and through a thread with a `queue.Queue` a machine: python -m
bench.messages.

One sender, machines that only count, two pollers. The baseline is what one would write first; it needs a
thread a machine, so it is measured with a thousand of them, the batch system also with a hundred thousand.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

from coordinator.batch import BatchConfig, BatchSystem, HandleResult, Mailbox, ReleaseMachine

MESSAGES = 300_000
MOST = 4096


class Counting:
    """A machine that counts its messages."""

    def __init__(self) -> None:
        self.count = 0

    def is_stopped(self) -> bool:
        return False


class Handler:
    """Takes what is in a mailbox and lets the machine go."""

    def handle_control(self, fsm: Any, mailbox: Mailbox[Any, Any]) -> int | None:
        mailbox.drain_messages(MOST)
        return 0

    def handle_normal(self, fsm: Counting, mailbox: Mailbox[Counting, int]) -> HandleResult:
        fsm.count += len(mailbox.drain_messages(MOST))
        return ReleaseMachine(0)

    def end_round(self, batch: list[Counting]) -> None:
        """Nothing to do."""


def batch_system(machines: int) -> float:
    """Return messages/s from the first send to the last one handled."""
    fsms = [Counting() for _ in range(machines)]
    config = BatchConfig(pollers=2, capacity=MESSAGES)
    with BatchSystem[Counting, int](Counting(), lambda _: Handler(), config) as system:
        for number, fsm in enumerate(fsms):
            system.router.register_machine(number, fsm)
        began = time.monotonic()
        for number in range(MESSAGES):
            system.router.send(number % machines, number)
        while sum(fsm.count for fsm in fsms) < MESSAGES:
            time.sleep(0.005)
        return MESSAGES / (time.monotonic() - began)


def queues(machines: int) -> float:
    """Return messages/s with a thread and a queue a machine."""
    boxes: list[queue.Queue[int | None]] = [queue.Queue() for _ in range(machines)]
    fsms = [Counting() for _ in range(machines)]

    def work(box: queue.Queue[int | None], fsm: Counting) -> None:
        while box.get() is not None:
            fsm.count += 1

    threads = [threading.Thread(target=work, args=each) for each in zip(boxes, fsms, strict=True)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    for number in range(MESSAGES):
        boxes[number % machines].put(number)
    for box in boxes:
        box.put(None)
    for thread in threads:
        thread.join()
    return MESSAGES / (time.monotonic() - began)


def run() -> dict[str, float]:
    """Return messages/s by what was measured."""
    return {
        "queue.Queue and a thread a machine, 1,000 machines (baseline)": queues(1000),
        "batch system, 1,000 machines": batch_system(1000),
        "batch system, 100,000 machines": batch_system(100_000),
    }


if __name__ == "__main__":
    for what, rate in run().items():
        print(f"{what}: {rate:,.0f} messages/s")
