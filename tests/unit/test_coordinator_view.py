"""The leader's view of units as REST reads it: a small one is never older than the request, a large one is
kept."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.server.coordinator import Coordinator
from coordinator.server.operators.view import _find_identity


@pytest.mark.parametrize(("took", "expected"), [(0.0, ["view 1", "view 2"]), (60.0, ["view 1", "view 1"])])
def test_only_a_view_that_took_long_is_kept(took: float, expected: list[str]) -> None:
    """`status` asks for the progress of units first: one that runs by then must be in the view."""
    built: list[str] = []

    def answer(request: Any) -> None:
        built.append(f"view {len(built) + 1}")
        request.answer.give_value(built[-1])

    coordinator: Any = SimpleNamespace(
        _view_lock=threading.Lock(),
        _viewed=None,
        _machine=SimpleNamespace(view_took=took),
        _send_to_leader=answer,
    )
    assert [Coordinator.get_view(coordinator) for _ in range(2)] == expected


@pytest.mark.parametrize(
    ("unit", "identity"),
    [
        ("capture/b1", ("capture", "b1", None)),
        ("apply/p/t", ("apply", "", "p")),
        ("apply", ("apply", "", None)),
    ],
)
def test_a_unit_outside_the_inventory_is_described_by_its_name(
    unit: str, identity: tuple[str, str, str | None]
) -> None:
    assert _find_identity(unit, None) == identity
