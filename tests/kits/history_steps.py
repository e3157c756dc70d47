"""Histories of a core as text: "step; step ⇒ order, order; …". After "⇒" come all orders that follow from the
step."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Steps = Mapping[str, Callable[..., object]]
"""Pattern of a step → what carries it out, from the core under test and the groups of the pattern."""


def play_steps(history: str, steps: Steps, core: Any, list_orders: Callable[[list[Any]], list[str]]) -> None:
    """Play a history on a core that collects its `effects`. The first step that differs is an error."""
    for step in history.split(";"):
        action, arrow, expected = (part.strip() for part in step.partition("⇒"))
        begin = len(core.effects)
        _play_step(action, steps, core)
        if arrow:
            found = ", ".join(list_orders(core.effects[begin:])) or "nothing"
            assert found == expected, f"{action} ⇒ {found}, not {expected}; in {history}"


def _play_step(action: str, steps: Steps, core: Any) -> None:
    for pattern, carry_out in steps.items():
        if match := re.fullmatch(pattern, action):
            carry_out(core, *match.groups())
            return
    raise ValueError(f"no step of a history: {action!r}")
