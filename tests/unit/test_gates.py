"""The tree passes all gates, as far as their baselines demand it; and baselines become worse only if that
is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gates.measures import MEASURES, judge_shapes, judge_share, judge_tests, judge_words
from tests.gates.path import list_files, list_repeated, measure_way
from tests.gates.ratchet import Measure, compare_values, load_baseline, lower_values, write_baselines
from tests.gates.sources import Source
from tests.gates.words import Figure


@pytest.mark.parametrize("gate", MEASURES)
def test_nothing_is_worse_than_its_baseline(gate: str) -> None:
    measure = MEASURES[gate]()
    wrong = compare_values(measure, load_baseline(measure))
    assert wrong == [], f"{gate}: {measure.figure}; target: {measure.target}"


def breaches(*names: str) -> Measure:
    return Measure("list", "", "0", dict.fromkeys(names, 1), is_list=True)


def counts(**values: int) -> Measure:
    return Measure("counts", "", "0", values, is_list=False)


def test_a_list_is_exact() -> None:
    assert compare_values(breaches("a"), {"a": 1}) == []
    assert compare_values(breaches("a", "b"), {"a": 1}) == ["list: b"]
    assert compare_values(breaches(), {"a": 1}) == ["list: a is mended, run python -m tests.gates --update"]


def test_counts_may_fall_and_not_rise() -> None:
    assert compare_values(counts(a=2), {"a": 2}) == []
    assert compare_values(counts(a=1), {"a": 2, "b": 1}) == []
    assert compare_values(counts(a=3, b=1), {"a": 2}) == ["counts: a is 3, was 2", "counts: b is 1, was 0"]


def test_an_update_notes_what_is_worse_only_if_that_is_accepted() -> None:
    measure = counts(a=1, b=3, c=1)
    assert lower_values(measure, {"a": 2, "b": 2, "d": 1}, accept=False) == {"a": 1, "b": 2}
    assert lower_values(measure, {"a": 2, "b": 2, "d": 1}, accept=True) == {"a": 1, "b": 3, "c": 1}


def test_baselines_are_read_as_they_were_written(tmp_path: Path) -> None:
    first, second, third = (
        breaches("x: y", "b"),
        counts(a=1, **{"b: c": 2}),
        counts(z=1)._replace(gate="more counts"),
    )
    write_baselines([(each, each.values) for each in (first, second, third)], tmp_path)
    assert [load_baseline(each, tmp_path) for each in (first, second, third)] == [
        first.values, second.values, third.values,
    ]  # fmt: skip
    assert load_baseline(breaches()._replace(gate="new"), tmp_path) == {}
    write_baselines([(first, {}), (second, second.values)], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["counts.txt"]


def test_what_meets_its_target_is_held_to_no_baseline() -> None:
    assert judge_shapes({"CaptureLoop": 12, "AgentState": 13}).values == {"AgentState": 13}
    assert judge_share(40, 100).values == {}
    assert judge_share(41, 100).values == {"share of the product, per mille": 410}
    assert judge_words("words", {"consumer": Figure(5, 10_000)}, 5).values == {}
    over = judge_words("words", {"consumer": Figure(5, 10_000), "producer": Figure(1, 100)}, 5)
    assert over.values == {"consumer": 5, "producer": 1}


def test_tests_may_not_grow_faster_than_the_product() -> None:
    text = '"""A module."""\ndef f():\n    """Docstrings are no statements."""\n    return 1\n'
    product, tests = [Source(f"product/{n}.py", text) for n in range(2)], Source("tests/a.py", text)
    baseline = judge_tests(product, [tests]).values
    assert baseline == {"statements for 100 of the product": 50}
    planted = judge_tests(product, [tests, Source("tests/b.py", "x = 1")])
    assert compare_values(planted, baseline) == ["tests: statements for 100 of the product is 75, was 50"]
    assert compare_values(judge_tests([*product, tests], [tests]), baseline) == []


def test_the_way_of_a_row_is_files_of_the_product_in_which_a_function_ran() -> None:
    passed = [
        "producer/main.py: run",
        "producer/main.py: stop",
        "tests/a.py: f",
        "deploy/b.py: f",
        "schemas/units.py: <module>",
    ]
    assert list_files(passed) == ["producer/main.py"]
    assert measure_way(passed).values == {}


def test_only_what_runs_for_each_transaction_is_on_the_way() -> None:
    few = {"start": 20, "commit": 2, "acknowledge": 2, "tick": 3}
    many = {"start": 20, "commit": 10, "acknowledge": 8, "tick": 5, "encode": 960, "close": 1}
    assert list_repeated(few, many, 8) == ["commit", "acknowledge", "encode"]


def test_a_way_of_more_files_than_its_target_is_held() -> None:
    folder = Path(__file__).parents[2] / "consumer"
    passed = [f"{path.relative_to(folder.parent).as_posix()}: f" for path in [*folder.rglob("*.py")][:61]]
    assert measure_way(passed).values == {"files": 61}
