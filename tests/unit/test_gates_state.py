"""The gate of fields finds what is planted, and nothing in a class that is as it should be."""

from __future__ import annotations

import pytest

from tests.gates import state
from tests.gates.sources import Source

GOOD = """
class Phase(Enum):
    ON = 1

@dataclass
class Unit:
    phase: Phase
    error: str | None = None
    is_paused: bool = False

    def fail(self, error: str) -> None:
        self.error = error

    def pause(self) -> None:
        self.is_paused = True

    def show(self) -> str:
        return self.error or str(self.is_paused)
"""


def find(text: str, path: str = "consumer/unit.py") -> set[str]:
    return {line.replace(f" {path}:", "") for line in state.find_breaches([Source(path, text)])}


def test_fields_that_are_set_in_one_place_and_read_in_another_pass() -> None:
    assert find(GOOD) == set()


@pytest.mark.parametrize(
    "function",
    [
        "def stop(unit: Unit) -> None:\n    unit.error = 'stopped'\n",
        "def stop(units: dict[str, Unit]) -> None:\n    units['u'].error = 'stopped'\n",
        "def stop(units: dict[str, Unit]):\n    for unit in units.values():\n        unit.error = ''\n",
        (
            "class Units:\n    def __init__(self) -> None:\n        self.first = Unit(Phase.ON)\n"
            "    def stop(self) -> None:\n        self.first.error = 'stopped'\n"
        ),
        "def stop(whatever):\n    whatever.error += 'stopped'\n",  # no other class has such a field
    ],
)
def test_a_write_from_outside_is_found(function: str) -> None:
    assert find(GOOD + function) == {"outside Unit.error"}


def test_a_write_is_of_the_class_that_its_container_holds() -> None:
    other = "@dataclass\nclass Other:\n    error: str = ''\n"
    stop = "def stop(units: dict[str, Unit]):\n    for unit in units.values():\n        unit.error = ''\n"
    assert find(GOOD + other + stop) == {"outside Unit.error"}
    assert find(GOOD + other + stop.replace("dict[str, Unit]", "dict")) == set()  # may be of either


def test_a_subclass_writes_fields_of_its_base_from_inside() -> None:
    other = "class Other(Unit):\n    def stop(self) -> None:\n        self.is_paused = True\n"
    assert find(GOOD.replace("self.is_paused = True", "self.is_paused = False") + other) == set()


def test_a_field_that_is_never_set_is_found() -> None:
    assert find(GOOD.replace("self.is_paused = True", "self.is_paused = False")) == {"unused Unit.is_paused"}


def test_a_field_that_is_never_read_is_found() -> None:
    assert find(GOOD.replace("str(self.is_paused)", "''")) == {"unused Unit.is_paused"}


def test_a_field_that_only_its_setters_read_is_found() -> None:
    text = GOOD.replace("        self.is_paused = True", "        self.is_paused = not self.is_paused")
    again = "    def pause_again(self) -> None:\n        self.is_paused = True\n"
    assert find(text.replace("str(self.is_paused)", "''") + again) == {"unused Unit.is_paused"}


def test_a_constructor_sets_what_it_is_given() -> None:
    text = GOOD.replace("self.is_paused = True", "self.is_paused = False")
    assert find(text + "def make() -> Unit:\n    return Unit(Phase.ON, is_paused=True)\n") == set()


def test_arguments_of_a_constructor_of_its_own_are_not_the_fields() -> None:
    text = (
        "class Log:\n    def __init__(self, path: str) -> None:\n        self.error: str | None = None\n"
        "    def read(self) -> str:\n        self.error = self.error or 'empty'\n        return self.error\n"
        "def make() -> Log:\n    return Log('a.log')\n"
    )
    assert find(text) == set()
    again = "    def close(self) -> None:\n        self.error = self.error or 'closed'\n"
    assert find(text.replace("def make", again + "def make")) == {"unused Log.error"}


def test_a_field_that_a_function_takes_for_granted_is_found() -> None:
    text = (
        GOOD
        + "    def log(self) -> None:\n        assert self.error is not None\n        print(self.error)\n"
    )
    assert find(text) == {"assumed Unit.error"}


def test_a_field_that_a_change_of_phase_empties_is_found() -> None:
    text = GOOD + "    def start(self) -> None:\n        self.phase, self.error = Phase.ON, None\n"
    assert find(text) == {"paired Unit.error"}


def test_fields_that_are_emptied_together_are_found() -> None:
    text = GOOD + "    def clear(self) -> None:\n        self.error = None\n        self.is_paused = False\n"
    assert find(text) == {"paired Unit.error", "paired Unit.is_paused"}


def test_values_and_contracts_are_exempt() -> None:
    outside = "def stop(unit: Unit) -> None:\n    unit.error = 'stopped'\n"
    assert find(GOOD.replace("@dataclass", "@dataclass(frozen=True)") + outside) == set()
    assert find(GOOD + outside, "schemas/config/unit.py") == set()


def test_fields_of_body_and_methods_are_counted_once() -> None:
    init = "    def __init__(self):\n        self.name, self.mark = '', 0\n        self.end: int = 1\n"
    text = f"class Unit:\n    name: str\n{init}"
    assert dict(state.count_fields([Source("a.py", text)])) == {"a.py: Unit": 3}


def test_fields_of_shaped_classes_are_counted() -> None:
    fields = "".join(f"    field_{number}: int\n" for number in range(13))
    text = "".join(f"class {name}:\n{fields}" for name in state.SHAPED)
    assert state.measure_shapes([Source("a.py", text)]) == dict.fromkeys(state.SHAPED, 13)


def test_shaped_classes_that_are_not_there_are_missed() -> None:
    with pytest.raises(LookupError, match="no class LeaderState"):
        state.measure_shapes([Source("a.py", GOOD)])
