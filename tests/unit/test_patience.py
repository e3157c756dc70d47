"""Limits on a busy machine count the time that a process could have had."""

from __future__ import annotations

from schemas.patience import MAX_PRESSURE, AdaptiveTimeout, measure_pressure, scale_timeout


def test_the_pressure_of_any_machine_is_within_bounds() -> None:
    assert 1.0 <= measure_pressure() <= MAX_PRESSURE
    assert 10.0 <= scale_timeout(10.0) <= 10.0 * MAX_PRESSURE


class Machine:
    def __init__(self) -> None:
        self.at, self.expected = 100.0, 1.0

    def patience(self, seconds: float) -> AdaptiveTimeout:
        return AdaptiveTimeout(seconds, now=lambda: self.at, pressure=lambda: self.expected)

    def passes(self, seconds: float) -> None:
        self.at += seconds


def test_with_time_to_spare_it_lasts_as_long_as_it_says() -> None:
    machine = Machine()
    patience = machine.patience(10)
    machine.passes(9.9)
    assert not patience.is_over()
    machine.passes(0.2)
    assert patience.is_over()


def test_on_a_machine_that_is_wanted_ten_times_over_it_lasts_ten_times_as_long() -> None:
    machine = Machine()
    patience = machine.patience(10)
    machine.expected = 10.0
    for _ in range(99):
        machine.passes(1)
        assert not patience.is_over()
    machine.passes(2)
    assert patience.is_over()
    assert patience.waited == 101


def test_what_was_waited_under_pressure_is_not_held_against_it_afterwards() -> None:
    machine = Machine()
    patience = machine.patience(10)
    machine.expected = 10.0
    for _ in range(50):
        machine.passes(1)
        patience.is_over()
    machine.expected = 1.0
    for _ in range(4):
        machine.passes(1)
        assert not patience.is_over()
    machine.passes(2)
    assert patience.is_over()


def test_what_goes_on_renews_it() -> None:
    machine = Machine()
    patience = machine.patience(10)
    for _ in range(5):
        machine.passes(9)
        assert not patience.is_over()
        patience.renew()
    assert patience.waited == 0
