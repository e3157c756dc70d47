"""An attempt of the product as actors: its own machine and its lanes', which a schedule advances in any
order, an effect a step or several."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Any, ClassVar, NoReturn

from consumer.attempt.effects import Effect, Machine, R
from consumer.attempt.lane_group import LaneGroup
from consumer.errors import ConsumerError
from tests.sim.target import Steps
from tests.sim.truth import Wrong

StepHandler = Callable[[Any, Any, "int | None"], Generator[None, None, Any]]
"""(actors, effect, lane) → the steps in which an effect of a lane (None: of the attempt's own) is carried
out."""
StepBinding = tuple[type[Effect[Any]], StepHandler]
StepTable = dict[type[Effect[Any]], StepHandler]


def in_steps(kind: type[Effect[R]], act: Callable[..., Generator[None, None, R]]) -> StepBinding:
    """Bind `act`(actors, effect, lane), which takes steps of the schedule, as many as it yields."""
    return kind, act


def after_a_step(kind: type[Effect[R]], act: Callable[[Any, Any], R]) -> StepBinding:
    """Bind `act`(actors, effect): others may go on before it."""

    def carry_out(actors: Any, effect: Effect[R], _lane: int | None) -> Generator[None, None, R]:
        yield
        return act(actors, effect)

    return kind, carry_out


def at_once(kind: type[Effect[R]], act: Callable[[Any, Any], R]) -> StepBinding:
    """Bind `act`(actors, effect), which takes no step."""

    def carry_out(actors: Any, effect: Effect[R], _lane: int | None) -> Generator[None, None, R]:
        yield from ()
        return act(actors, effect)

    return kind, carry_out


def unmet(kind: type[Effect[R]], reason: str) -> StepBinding:
    """Bind an effect that this simulation never meets because of `reason`."""

    def refuse(_actors: Any, effect: Effect[R], _lane: int | None) -> NoReturn:
        raise NotImplementedError(f"the simulation does not carry out {effect}: {reason}")

    return kind, refuse


def build_step_table(*bindings: StepBinding) -> StepTable:
    table = dict(bindings)
    assert len(table) == len(bindings), "an effect has two handlers"
    return table


class AttemptActors:
    """The actors of one attempt. A subclass runs the attempt in `task`, and has the handlers of all
    effects."""

    handlers: ClassVar[StepTable]

    def __init__(self) -> None:
        self._lanes = 0
        self.actors: list[Steps] = [self.task()]

    def task(self) -> Steps:
        """Drive the attempt's own machine to its end."""
        raise NotImplementedError

    def carry_out(self, effect: Effect[Any], lane: int | None) -> Generator[None, None, Any]:
        """Return what the effect of a lane (None: the attempt's own) came to."""
        return (yield from self.handlers[type(effect)](self, effect, lane))

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
