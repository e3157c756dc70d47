"""Generated mutants: their keys outlive moved lines and renames, and a planted one is judged rightly."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants.fresh import changes
from tests.mutants.generated import PACKAGES, ROOT, SEED, SIZE
from tests.mutants.generated.choice import Budget, Choice
from tests.mutants.generated.exchange import LiveFunctions, MutatedImport, NoSuchFunctionError
from tests.mutants.generated.places import Key, Place, list_file_places, list_places
from tests.mutants.generated.renaming import read_renames, rename
from tests.mutants.generated.sample import (
    ACCEPTED,
    SAMPLE,
    Judged,
    Reason,
    draw,
    read_accepted,
    read_sample,
    redraw,
    write_sample,
)
from tests.mutants.generated.tracing import Trace, Traced

PLANTED = '''"""Lanes."""
from functools import cache

LIMIT = 3


class Base:
    def __init__(self) -> None:
        self.size = 0


class Lane(Base):
    width: int = 5

    def __init__(self) -> None:
        super().__init__()
        self.open = True

    @property
    def is_full(self) -> bool:
        return self.size >= LIMIT

    def count(self, step=2):
        def add(number):
            return number + 7

        return add(self.size) + step


@cache
def double(number):
    return number + number
'''


def _list_planted(tmp_path: Path, source: str = PLANTED) -> dict[Key, Place]:
    folder = tmp_path / "lanes"
    folder.mkdir(exist_ok=True)
    (folder / "lane.py").write_text(source)
    found = list(changes(tmp_path, ("lanes",)))
    return {place.key: place for place in list_file_places("lanes/lane.py", source, found)}


def _key(function: str, operator: str, ordinal: int = 0) -> Key:
    return Key("lanes/lane.py", function, operator, ordinal)


def test_places_are_named_by_function_operator_and_ordinal(tmp_path: Path) -> None:
    places = _list_planted(tmp_path)
    assert [(key.function, key.operator, key.ordinal) for key in places] == [
        ("<module>", "add 1", 0),
        ("Base.__init__", "add 1", 0),
        ("Lane", "add 1", 0),
        ("Lane.__init__", "drop call", 0),
        ("Lane.__init__", "flip boolean", 0),
        ("Lane.is_full", ">= to >", 0),
        ("Lane.count", "add 1", 0),
        ("Lane.count.add", "add 1", 0),
        ("Lane.count", "+ to -", 0),
        ("double", "+ to -", 0),
    ]


def test_code_that_runs_at_import_has_no_function_but_names(tmp_path: Path) -> None:
    places = _list_planted(tmp_path)
    at_import = {key.function: place.names for key, place in places.items() if place.function is None}
    assert at_import == {"<module>": ("LIMIT",), "Lane": ("width", "Lane"), "Lane.count": ("count", "Lane")}
    assert all(place.names == () for place in places.values() if place.function)


def test_keys_do_not_change_when_lines_move(tmp_path: Path) -> None:
    moved = PLANTED.replace("LIMIT = 3\n", "LIMIT = 3\n\n\ndef before() -> None:\n    print(1)\n")
    assert set(_list_planted(tmp_path)) < set(_list_planted(tmp_path, moved))


def test_every_place_of_the_product_has_a_key_of_its_own() -> None:
    places = list_places(ROOT, PACKAGES)
    assert len({place.key for place in places}) == len(places) > 10 * SIZE


def test_sample_is_in_proportion_and_the_same_for_a_seed() -> None:
    keys = [
        Key(f"{folder}/x.py", "f", "add 1", n)
        for folder, size in (("a/b", 60), ("a/c", 40))
        for n in range(size)
    ]
    drawn = draw(keys, 10, 1)
    assert Counter(key.stratum for key in drawn) == {"a/b": 6, "a/c": 4}
    assert drawn == draw(reversed(keys), 10, 1) != draw(keys, 10, 2)


def test_stored_sample_was_drawn_by_its_seed_or_has_places() -> None:
    sample = read_sample(SAMPLE)
    assert len(sample) == SIZE
    places = {place.key for place in list_places(ROOT, PACKAGES)}
    assert [str(key) for key in sample if key not in places] == [], "→ --renamed or --redraw"
    strata = Counter(key.stratum for key in draw(places, SIZE, SEED))
    assert {key.stratum for key in sample} >= {name for name, count in strata.items() if count > 20}


def test_reasons_are_given_for_survivors_only() -> None:
    survived = {key for key, judged in read_sample(SAMPLE).items() if judged and judged.verdict == "survived"}
    reasons = read_accepted(ACCEPTED)
    assert [each for each in reasons if each[:4] not in survived] == []
    assert all(len(each.reason) > 10 for each in reasons)


def test_a_sample_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "sample.tsv"
    sample = {_key("f", "add 1"): Judged("killed", "t.py::test[a b]", "failed"), _key("g", "+ to -", 2): None}
    write_sample(path, sample)
    assert read_sample(path) == sample


def test_a_key_without_a_place_is_replaced_nearby() -> None:
    kept, missing, near, far = (
        Key(file, "f", "add 1", n) for n, file in enumerate(("a/b/x.py", "a/b/y.py", "a/b/y.py", "c/d/z.py"))
    )
    judged = Judged("survived")
    assert redraw({kept: judged, missing: judged}, [kept, near, far]) == {kept: judged, near: None}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a/x.py\tLane.count\tcount_rows", ("a/x.py", "Lane.count_rows.add")),
        ("a/x.py\tLane\tRowLane", ("a/x.py", "RowLane.count.add")),
        ("a/x.py\tLane.count.add\tadd_one", ("a/x.py", "Lane.count.add_one")),
        ("a/x.py\tLane.count\tWide.count", ("a/x.py", "Wide.count.add")),
        ("a/x.py\tLane\tc/z.py:Lanes.Lane", ("c/z.py", "Lanes.Lane.count.add")),
        ("a/x.py\t\tb/y.py", ("b/y.py", "Lane.count.add")),
        ("a\t\tb/c", ("b/c/x.py", "Lane.count.add")),
        ("a/y.py\tLane\tRowLane", ("a/x.py", "Lane.count.add")),
    ],
)
def test_a_rename_carries_keys_with_it(line: str, expected: tuple[str, str]) -> None:
    renames = read_renames([line])
    assert rename(Key("a/x.py", "Lane.count.add", "add 1", 3), renames) == Key(*expected, "add 1", 3)
    assert rename(Reason("a/x.py", "Lane.count.add", "add 1", 3, "why"), renames)[:2] == expected


def test_class_method_and_file_are_renamed_together() -> None:
    renames = read_renames(
        ["a/x.py\tLane\tRowLane\n", "a/x.py\tLane.count\tcount_rows\n", "\n", "a/x.py\t\tb/y.py\n"]
    )
    assert rename(Key("a/x.py", "Lane.count", "add 1", 0), renames)[:2] == ("b/y.py", "RowLane.count_rows")
    with pytest.raises(ValueError, match="not a rename"):
        read_renames(["a/x.py\tLane"])


def _import_planted(tmp_path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, tmp_path / "lanes" / "lane.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _exchange(tmp_path: Path, key: Key) -> ModuleType:
    place = _list_planted(tmp_path)[key]
    module = _import_planted(tmp_path, "planted_lane")
    assert module.double(4) == 8
    assert place.function is not None
    LiveFunctions(tmp_path, ["lanes"]).exchange(place.function, place.mutate_in_place(PLANTED))
    return module


def test_a_running_function_gets_the_mutated_code(tmp_path: Path) -> None:
    assert not _exchange(tmp_path, _key("Lane.__init__", "flip boolean")).Lane().open


def test_a_property_and_an_outer_function_get_the_mutated_code(tmp_path: Path) -> None:
    lane = _exchange(tmp_path, _key("Lane.is_full", ">= to >")).Lane()
    lane.size = 3
    assert not lane.is_full
    assert _exchange(tmp_path, _key("Lane.count", "+ to -")).Lane().count() == 5


def test_a_dropped_super_call_keeps_the_free_variables(tmp_path: Path) -> None:
    assert not hasattr(_exchange(tmp_path, _key("Lane.__init__", "drop call")).Lane(), "size")


def test_caches_are_empty_after_an_exchange(tmp_path: Path) -> None:
    assert _exchange(tmp_path, _key("double", "+ to -")).double(4) == 0


def test_a_function_that_nobody_holds_cannot_be_exchanged(tmp_path: Path) -> None:
    place = _list_planted(tmp_path)[_key("double", "+ to -")]
    assert place.function is not None
    with pytest.raises(NoSuchFunctionError):
        LiveFunctions(tmp_path, ["elsewhere"]).exchange(place.function, place.mutate_in_place(PLANTED))


def test_a_module_is_imported_with_the_mutated_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted_module.py").write_text("LIMIT = 3\n")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    MutatedImport(tmp_path, "planted_module.py", "LIMIT = 4\n").install()
    assert importlib.import_module("planted_module").LIMIT == 4
    monkeypatch.delitem(sys.modules, "planted_module")


def test_tests_of_the_same_name_and_with_few_calls_come_first(tmp_path: Path) -> None:
    places = _list_planted(tmp_path)
    functions = ["lanes/lane.py Lane.is_full", "lanes/lane.py Lane.count", "other/x.py f"]
    tests = {
        "tests/unit/test_other.py::test_few": Traced(1.0, [0]),
        "tests/unit/test_other.py::test_many": Traced(1.0, [0, 1, 2]),
        "tests/unit/test_lanes.py::test_many": Traced(1.0, [0, 1, 2]),
        "tests/unit/test_lanes.py::test_long": Traced(11.0, [0]),
        "tests/unit/test_lanes.py::test_unrelated": Traced(1.0, [2]),
    }
    choice = Choice(tmp_path, ["lanes"], Trace(functions, tests), Budget(40, 2.5))
    lanes, few = "tests/unit/test_lanes.py::test_many", "tests/unit/test_other.py::test_few"
    assert choice.choose(places[_key("Lane.is_full", ">= to >")]) == [lanes, few]
    assert choice.choose(places[_key("<module>", "add 1")]) == [lanes, few], "is_full mentions LIMIT"
    assert choice.choose(places[_key("double", "+ to -")]) == []


SCRIPT = """
import json, sys, time
from pathlib import Path
from tests.mutants.fresh import Change
from tests.mutants.generated import PACKAGES, ROOT
from tests.mutants.generated.choice import Budget
from tests.mutants.generated.places import list_file_places
from tests.mutants.generated.runner import Runner

file, folder = "producer/sources/mysql/flavour.py", Path(sys.argv[1])
source = (ROOT / file).read_text()

def plant(old, new):
    start = source.index(old)
    return Change(file, source[:start].count("\\n") + 1, start, start + len(old), new, "planted")

planted = [
    plant("return first is None or first >= started", "return first is None or first > started"),
    plant("return first is None or first >= started", "return first is None or started <= first"),
    plant("return first is None or first >= started", "import os; os._exit(0)"),
    plant("_PARSE_ERROR = 1064", "raise ImportError"),
]
places = list(list_file_places(file, source, planted))
tests = ["tests/unit/test_snapshot_order.py"]
print()
for place, judged in Runner(Budget(), tests).judge(places, folder / "trace.json"):
    print(json.dumps([planted.index(place.change), judged.verdict, judged.how]), flush=True)
"""


def test_planted_mutants_get_the_right_verdicts(tmp_path: Path) -> None:
    """In a process of its own: it forks, and nothing of the product may be imported before."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    verdicts = sorted(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert verdicts == [
        [0, "killed", "failed"],
        [1, "survived", ""],
        [2, "killed", "died"],
        [3, "error", "a test module cannot be imported"],
    ], done.stderr
