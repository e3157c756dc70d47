"""Decides which slot serves which unit. Does no I/O.

A unit is in at most one slot under one fencing token. It moves to another slot when the first one has
released it. After a takeover, which has raised its fencing token, it is given to a slot at once: the former
one may be lost, or wait for ever for a statement, and what it still writes is rolled back.

Units are in the apply process's own slot only while no other one is open, or if it alone may serve them.
A slot that cannot reach a server, because its host is cut off from it, serves no unit for a while. If no slot
can reach it, the server is away, and no unit moves. A slot whose host lacks the secrets of a pipeline serves
no unit of that pipeline for a while; if all of them do, the own slot serves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from consumer.slots.messages import ReleaseUnit, ServeUnit, SlotCommand, UnitPlace, UnitReleased

LAG_EVENTS = 5_000
"""A unit lags if it has more events left than these. Such a unit can keep a slot busy."""


@dataclass(frozen=True, slots=True)
class SendCommand:
    """Send a command to a slot."""

    slot: int
    command: SlotCommand


@dataclass(frozen=True, slots=True)
class UnitLost:
    """The slot of the unit is lost. Only a takeover, which fences its last attempt, continues the unit."""

    place: UnitPlace
    epoch: int


PlanEffect = SendCommand | UnitLost


@dataclass(slots=True)
class _Holding:
    """A slot that has a unit: it may be running an attempt."""

    slot: int
    epoch: int
    """The fencing token under which it serves the unit."""
    releasing: bool = False

    def begin_release(self) -> bool:
        """Note that the slot is to release the unit; return whether that is new."""
        is_new, self.releasing = not self.releasing, True
        return is_new


@dataclass(slots=True)
class _PlannedUnit:
    """A unit that is to be served, or that a slot still has."""

    serve: ServeUnit | None = None
    """The command by which a slot is to serve it; None: it is to be released."""
    held: _Holding | None = None
    lags: bool = False

    def set_serve(self, serve: ServeUnit | None) -> None:
        """Set the command by which a slot is to serve the unit."""
        self.serve = serve

    def set_left(self, left: int) -> bool:
        """Set how many events are left; return whether the unit lags since now."""
        lagged, self.lags = self.lags, left > LAG_EVENTS
        return self.lags and not lagged

    def give_to(self, slot: int, epoch: int) -> None:
        """Note that the slot gets the unit."""
        self.held = _Holding(slot, epoch)

    def take_away(self) -> None:
        """Note that no slot has the unit."""
        self.held = None

    def is_served_under(self, epoch: int) -> bool:
        """Return whether the unit is to be served under `epoch`, and not under a later fencing token."""
        return self.serve is not None and self.serve.epoch == epoch


@dataclass(slots=True)
class SlotPlan:
    """The open slots, and the units of all pipelines."""

    own: int
    """The slot of the apply process itself."""
    _slots: dict[int, set[UnitPlace]] = field(default_factory=dict)
    _units: dict[UnitPlace, _PlannedUnit] = field(default_factory=dict)
    _cut_off: set[int] = field(default_factory=set)
    """The slots that cannot reach a server, while others can."""
    _refused: set[tuple[int, str]] = field(default_factory=set)
    """(slot, run) of the pipelines whose secrets the slot's host lacks."""
    _homeless: dict[UnitPlace, None] = field(default_factory=dict)
    """The units that are to be served and that no slot has."""

    def get_slot(self, place: UnitPlace) -> int | None:
        """Return the slot that may run an attempt at the unit; None if there is none."""
        unit = self._units.get(place)
        return None if unit is None or unit.held is None else unit.held.slot

    def list_units(self, slot: int) -> list[UnitPlace]:
        """Return the units that a slot has."""
        return sorted(self._slots.get(slot, ()))

    # -- slots

    def open_slot(self, slot: int) -> list[PlanEffect]:
        """Give units to a slot whose stream is new."""
        self._slots[slot] = set()
        return [*self._place_homeless(), *self._balance_units()]

    def begin_trouble(self, slot: int) -> list[PlanEffect]:
        """Move the units of a slot that cannot reach a server to the others."""
        if slot not in self._slots or slot == self.own:
            return []
        self._cut_off.add(slot)
        if self._cut_off >= self._slots.keys() - {self.own}:
            self._cut_off.clear()
        return self._balance_units()

    def refuse_pipeline(self, slot: int, run: str) -> list[PlanEffect]:
        """Move the units of a pipeline whose secrets a slot's host lacks to the others."""
        self._refused.add((slot, run))
        return self._release_all(place for place in self.list_units(slot) if place[0] == run)

    def end_trouble(self, slot: int) -> list[PlanEffect]:
        """Let a slot that had a trouble serve all units again."""
        if slot not in self._cut_off and all(each != slot for each, _ in self._refused):
            return []
        self._cut_off.discard(slot)
        self._forget_refusals(slot)
        return self._balance_units()

    def _forget_refusals(self, slot: int) -> None:
        self._refused = {each for each in self._refused if each[0] != slot}

    def lose_slot(self, slot: int) -> list[PlanEffect]:
        """Take the units away from a slot whose stream has ended."""
        out: list[PlanEffect] = []
        self._forget_refusals(slot)
        self._cut_off.discard(slot)
        if self._cut_off >= self._slots.keys() - {self.own, slot}:
            self._cut_off.clear()
        for place in sorted(self._slots.pop(slot, ())):
            unit = self._units[place]
            epoch = unit.held.epoch if unit.held is not None else 0
            unit.take_away()
            if unit.is_served_under(epoch):
                unit.set_serve(None)
                out.append(UnitLost(place, epoch))
            self._keep_or_forget(place, unit)
        return [*out, *self._place_homeless()]

    # -- units

    def serve_unit(self, serve: ServeUnit) -> list[PlanEffect]:
        """Let a slot serve a unit after its takeover. A slot that had it before is asked to release it, and
        not waited for.
        """
        place = serve.place
        unit = self._units.setdefault(place, _PlannedUnit())
        unit.set_serve(serve)
        unit.set_left(serve.end - serve.offset)
        out = self._release(place, unit)
        if unit.held is not None:
            self._slots[unit.held.slot].discard(place)
            unit.take_away()
        self._homeless[place] = None
        return [*out, *self._place_homeless()]

    def withdraw_unit(self, place: UnitPlace) -> list[PlanEffect]:
        """Let no slot serve the unit any more. `get_slot` shows when none does."""
        unit = self._units.get(place)
        if unit is None:
            return []
        unit.set_serve(None)
        if unit.held is not None:
            return self._release(place, unit)
        self._keep_or_forget(place, unit)
        return []

    def record_release(self, slot: int, released: UnitReleased) -> list[PlanEffect]:
        """Record that a slot has released a unit. The unit is served again if that was for another slot."""
        place = released.run, released.topic
        unit = self._units.get(place)
        if unit is None or unit.held is None or (unit.held.slot, unit.held.epoch) != (slot, released.epoch):
            return []
        self._slots[slot].discard(place)
        unit.take_away()
        if unit.serve is not None and unit.is_served_under(released.epoch):
            unit.set_serve(None if released.failed else _continue_after(unit.serve, released))
        self._keep_or_forget(place, unit)
        return self._place_homeless()

    def record_left(self, slot: int, place: UnitPlace, left: int) -> list[PlanEffect]:
        """Record how many events a unit has left. If it lags from now on, and its slot has another unit
        that lags, while another slot has none, the unit moves there.
        """
        unit = self._units.get(place)
        if unit is None or self.get_slot(place) != slot or unit.serve is None:
            return []
        if not unit.set_left(left) or slot == self.own:
            return []
        busy = {each: self._count_lagging(each) for each in self._list_candidates(unit.serve)}
        if busy.get(slot, 0) > 1 and min(busy.values()) == 0:
            return self._release(place, unit)
        return []

    def _release(self, place: UnitPlace, unit: _PlannedUnit) -> list[PlanEffect]:
        if unit.held is None or not unit.held.begin_release():
            return []
        return [SendCommand(unit.held.slot, ReleaseUnit(*place))]

    def _keep_or_forget(self, place: UnitPlace, unit: _PlannedUnit) -> None:
        """Let a unit without a slot wait for one if it is to be served, otherwise forget it."""
        if unit.serve is not None:
            self._homeless[place] = None
            return
        self._homeless.pop(place, None)
        del self._units[place]

    # -- the choice of a slot

    def _list_candidates(self, serve: ServeUnit) -> list[int]:
        """Return the slots that may serve a unit."""
        homes = [slot for slot in self._list_homes() if (slot, serve.run) not in self._refused]
        if serve.only_here or not homes:
            return [self.own] if self.own in self._slots else []
        return homes

    def _list_homes(self) -> list[int]:
        """Return the slots that serve units, apart from the apply process's own."""
        return [slot for slot in self._slots if slot != self.own and slot not in self._cut_off]

    def _count_lagging(self, slot: int) -> int:
        return sum(self._units[place].lags for place in self._slots[slot])

    def _place_homeless(self) -> list[PlanEffect]:
        out: list[PlanEffect] = []
        for place in list(self._homeless):
            unit = self._units[place]
            if unit.serve is None or not (candidates := self._list_candidates(unit.serve)):
                continue
            by_lag: Callable[[int], int] = self._count_lagging if unit.lags else lambda _slot: 0
            slot = min(candidates, key=lambda each: (by_lag(each), len(self._slots[each]), each))
            self._slots[slot].add(place)
            del self._homeless[place]
            unit.give_to(slot, unit.serve.epoch)
            out.append(SendCommand(slot, unit.serve))
        return out

    def _balance_units(self) -> list[PlanEffect]:
        """Let slots release the units that other slots should have now."""
        homes = {slot: self._slots[slot] for slot in self._list_homes()}
        if not homes:
            return []
        others = [(slot, place) for slot in self._slots.keys() - homes for place in self.list_units(slot)]
        movable = [place for slot, place in sorted(others) if self._is_misplaced(slot, place)]
        share = -(-(len(movable) + sum(map(len, homes.values()))) // len(homes))
        surplus = [place for units in homes.values() for place in sorted(units)[share:]]
        return self._release_all([*movable, *surplus])

    def _is_misplaced(self, slot: int, place: UnitPlace) -> bool:
        """Return whether a slot has a unit that another one should have."""
        serve = self._units[place].serve
        return serve is not None and slot not in self._list_candidates(serve)

    def _release_all(self, places: Iterable[UnitPlace]) -> list[PlanEffect]:
        return [effect for place in places for effect in self._release(place, self._units[place])]


def _continue_after(serve: ServeUnit, released: UnitReleased) -> ServeUnit:
    """Return how another slot continues a unit that was released without a failure."""
    return replace(
        serve,
        offset=max(serve.offset, released.offset),
        end=max(serve.end, released.end),
        was=None if released.offset > serve.offset else serve.was,
        trial=released.trial,
    )
