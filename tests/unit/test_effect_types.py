"""Each effect has one handler in each driver, and mypy knows the type of each effect's result."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from mypy import api

from consumer.attempt import effects as fx
from consumer.attempt.drivers.batches import BatchDriver
from consumer.attempt.drivers.threads import ThreadDriver
from consumer.attempt.effects import Effect, HandlerTable
from tests.sim.attempt import Attempt
from tests.sim.changing import Run

ROOT = Path(__file__).resolve().parents[2]
EFFECTS = {each for each in vars(fx).values() if isinstance(each, type) and issubclass(each, Effect)} - {
    Effect
}
X: Any = object()


def test_every_effect_has_a_handler_in_each_driver() -> None:
    assert len(EFFECTS) == 34
    assert set(ThreadDriver.handlers.handlers) == EFFECTS
    assert set(BatchDriver.handlers.handlers) == EFFECTS


def test_every_effect_has_a_handler_in_each_simulation() -> None:
    assert set(Attempt.handlers) == EFFECTS
    assert set(Run.handlers) == EFFECTS


def test_an_effect_with_two_handlers_is_refused() -> None:
    with pytest.raises(ValueError, match="two handlers"):
        HandlerTable(fx.Sleep.refuse("a reason"), fx.Await.refuse("a reason"), fx.Sleep.refuse("another"))


def test_an_effect_that_a_simulation_cannot_meet_names_the_reason() -> None:
    with pytest.raises(NotImplementedError, match=r"AskSource.*only a partial snapshot of Debezium"):
        Attempt.handlers[fx.AskSource](X, fx.AskSource(X, ()), None)


PREAMBLE = """
from collections.abc import Sequence
from consumer.attempt.effects import HandlerTable, Machine, OwnConnection, ReadSharers, Sleep, ask_driver

class Driver:
    def own_connection(self, effect: OwnConnection) -> int | None:
        return 3
    def read_sharers(self, effect: ReadSharers) -> list[str]:
        return []
    def read_numbers(self, effect: ReadSharers) -> list[int]:
        return []
    def sleep(self, effect: Sleep) -> None: ...

class OtherDriver:
    def sleep(self, effect: Sleep) -> None: ...

right: HandlerTable[Driver] = HandlerTable(
    OwnConnection.bind_handler(Driver.own_connection),
    ReadSharers.bind_handler(Driver.read_sharers),
    Sleep.bind_handler(Driver.sleep),
)

def use_answers() -> Machine[int]:
    connection: int | None = yield from ask_driver(OwnConnection())
    yield Sleep(1.0)
    return connection or 0
"""
BREACHES = {
    "a handler returns another type": "ReadSharers.bind_handler(Driver.read_numbers)",
    "a handler takes another effect": "Sleep.bind_handler(Driver.own_connection)",
    "a handler belongs to another driver": """
table: HandlerTable[Driver] = HandlerTable(Sleep.bind_handler(OtherDriver.sleep))""",
    "an answer is used as another type": """
def use_text() -> Machine[str]:
    answer: str = yield from ask_driver(OwnConnection())
    return answer""",
    "an answer may be None": """
def use_number() -> Machine[int]:
    return (yield from ask_driver(OwnConnection()))""",
    "an annotation is only a hope": """
def hope_for_number() -> Machine[int]:
    answer: int = yield OwnConnection()
    return answer""",
}


def test_mypy_refuses_a_wrong_handler_and_a_wrong_answer(tmp_path: Path) -> None:
    """Only this snippet and the module of effects are checked, so imports of other modules are skipped."""
    snippet = tmp_path / "snippet.py"
    text, last_lines = PREAMBLE, []
    for breach in BREACHES.values():
        text += f"\n{breach.strip()}\n"
        last_lines.append(text.count("\n"))
    snippet.write_text(text)
    report, problems, _ = api.run(
        [
            "--strict", "--follow-imports=skip", "--config-file=", f"--cache-dir={tmp_path}",
            str(snippet), str(ROOT / "consumer" / "attempt" / "effects.py"),
        ]
    )  # fmt: skip
    errors = [int(line) for line in re.findall(r"snippet\.py:(\d+): error:", report)]
    begin = PREAMBLE.count("\n")
    assert not problems
    assert [error for error in errors if error <= begin] == [], report
    missed = []
    for name, end in zip(BREACHES, last_lines, strict=True):
        if not any(begin < error <= end for error in errors):
            missed.append(name)
        begin = end
    assert missed == [], report
