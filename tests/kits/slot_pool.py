"""A pool of slots whose links note what they are to send."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil

from consumer.attempt.reports import Report
from consumer.slots.messages import SlotCommand, SlotOpened, identify_machine
from consumer.slots.pool import OWN, SlotPool


class Link:
    """A slot's link that notes its commands; `ended`: how often its stream was ended."""

    def __init__(self) -> None:
        self.commands: list[SlotCommand] = []
        self.ended = 0

    def send_command(self, command: SlotCommand) -> None:
        self.commands.append(command)

    def end_stream(self) -> None:
        self.ended += 1

    def take(self) -> list[SlotCommand]:
        commands, self.commands = self.commands, []
        return commands


class Listener:
    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.lost: list[tuple[str, int]] = []

    def take_reports(self, reports: list[Report]) -> None:
        self.reports += reports

    def lose_unit(self, topic: str, epoch: int) -> None:
        self.lost.append((topic, epoch))


def started_at(process: int) -> float:
    try:
        return psutil.Process(process).create_time()
    except (psutil.NoSuchProcess, ValueError):
        return 0.0


class Slots:
    """A pool with its own slot and the pipeline r."""

    def __init__(self) -> None:
        self.pool, self.listener = SlotPool(), Listener()
        settings: Any = SimpleNamespace(encode=lambda: b"settings", encode_for_executor=lambda: b"settings")
        self.pool.add_pipeline("r", settings, self.listener)
        self.own = Link()
        self.pool.open_slot(self.own, SlotOpened(OWN, 1, 0.0, "h", "m"))

    def open(
        self, number: int, process: int = 0, machine: str = identify_machine(), started: float | None = None
    ) -> tuple[Link, int]:
        link = Link()
        began = started_at(process) if started is None else started
        return link, self.pool.open_slot(link, SlotOpened(number, process, began, "h", machine))
