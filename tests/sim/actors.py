"""An attempt of the product as actors: its own machine and its lanes', which a schedule advances in any order, an effect a step or several."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

from consumer.attempt.effects import AttemptEffect, Machine
from consumer.attempt.lane_group import LaneGroup
from consumer.errors import ConsumerError
from tests.sim.target import Steps
from tests.sim.truth import Wrong


class AttemptActors:
    """The actors of one attempt. Whoever inherits it runs the attempt in `task`, and carries its effects out."""

    def __init__(self) -> None:
        self._lanes = 0
        self.actors: list[Steps] = [self.task()]

    def task(self) -> Steps:
        """Drive the attempt's own machine to its end."""
        raise NotImplementedError

    def carry_out(self, effect: AttemptEffect, lane: int | None) -> Generator[None, None, Any]:
        """Return what the effect of a lane (None: the attempt's own) came to."""
        raise NotImplementedError

    def step(self, rng: random.Random) -> None:
        """Advance one actor."""
        actor = rng.choice(self.actors)
        try:
            next(actor)
        except StopIteration:
            if actor in self.actors:
                self.actors.remove(actor)

    def drive(self, machine: Machine[Any], lane: int | None = None) -> Generator[None, None, Any]:
        try:
            effect = next(machine)
            while True:
                try:
                    result = yield from self.carry_out(effect, lane)
                except ConsumerError as error:
                    effect = machine.throw(error)
                else:
                    effect = machine.send(result)
        except StopIteration as end:
            return end.value

    def start(self, group: LaneGroup) -> None:
        self._lanes = group.count
        self.actors += [self._lane(group, number) for number in range(group.count)]

    def join(self) -> Steps:
        while self._lanes:
            yield

    def _lane(self, group: LaneGroup, number: int) -> Steps:
        try:
            yield from self.drive(group.run_lane(number), number)
        except Wrong:
            raise
        except Exception as error:  # noqa: BLE001  # as the product's driver does it
            group.record_lane_error(error)
        self._lanes -= 1
