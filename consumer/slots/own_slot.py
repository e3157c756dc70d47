"""The slot in the apply process itself, which serves units while no task of Spark does."""

from __future__ import annotations

import queue
import threading

from consumer.slots.faults import fault_ends_process
from consumer.slots.messages import SlotAnswer, SlotCommand, describe_slot
from consumer.slots.pool import OWN, SlotPool
from consumer.slots.runner import SlotRunner


class OwnSlot:
    """The link to a runner in this process. Messages pass through queues, as on a stream."""

    def __init__(self, pool: SlotPool) -> None:
        self._pool = pool
        self._commands: queue.SimpleQueue[SlotCommand | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[SlotAnswer | None] = queue.SimpleQueue()
        self._runner = SlotRunner(self._answers.put, "own slot")
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in (
                (self._pass_commands, "own slot commands"),
                (self._pass_answers, "own slot answers"),
            )
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        self._pool.open_slot(self, describe_slot(OWN))

    def send_command(self, command: SlotCommand) -> None:
        self._commands.put(command)

    def end_stream(self) -> None:
        self._commands.put(None)

    def close(self) -> None:
        """Wait until nothing of this slot can write any more."""
        self.end_stream()
        for thread in self._threads:
            thread.join()

    def _pass_commands(self) -> None:
        with fault_ends_process("slot of the apply process"):
            while (command := self._commands.get()) is not None:
                self._runner.handle_command(command)
            self._runner.close()
            self._answers.put(None)

    def _pass_answers(self) -> None:
        with fault_ends_process("slot of the apply process"):
            while (answer := self._answers.get()) is not None:
                self._pool.take_answer(OWN, answer)
