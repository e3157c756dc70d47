"""The mutants fit the product: one whose text is gone would change nothing, and no test would miss it."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.fresh import changes, drawn
from tests.mutants.mutant import Mutant
from tests.mutants.named_bugs import NAMED_BUGS, SAMPLE_SIZE, draw_sample
from tests.mutants.run import PRODUCT, ROOT, Copy, run
from tests.mutants.survivors import LIMITS, SURVIVORS, known_survivor

SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for package in PRODUCT
    for path in (ROOT / package).rglob("*.py")
}


@pytest.mark.parametrize("mutant", NAMED_BUGS, ids=lambda mutant: mutant.bug)
def test_a_named_bug_changes_one_place_of_the_product(mutant: Mutant) -> None:
    places = {file: found for file, text in SOURCES.items() if (found := text.count(mutant.old))}
    assert places == {mutant.file: 1}
    assert mutant.new != mutant.old
    ast.parse(SOURCES[mutant.file].replace(mutant.old, mutant.new))


def test_named_bugs_have_distinct_names_and_changes() -> None:
    # The most that `.ci/run` can try in its time, by turns; it was 100 before failovers and TDSQL came in.
    assert 70 <= len({mutant.bug for mutant in NAMED_BUGS}) == len(NAMED_BUGS) <= 120
    assert len({mutant[:3] for mutant in NAMED_BUGS}) == len(NAMED_BUGS)


@pytest.mark.parametrize("test", sorted({test for mutant in NAMED_BUGS for test in mutant.tests}))
def test_the_tests_that_must_find_a_bug_exist(test: str) -> None:
    """They are unit tests or simulations: neither the list nor its sample needs a service."""
    file, _, name = test.partition("::")
    assert file.startswith(("tests/unit/", "tests/sim/"))
    names = [
        each.name
        for each in ast.parse(Path(ROOT, file).read_text()).body
        if isinstance(each, ast.FunctionDef)
    ]
    assert name in names if name else names


def test_a_seed_draws_the_same_sample_again() -> None:
    assert draw_sample(1) == draw_sample(1) != draw_sample(2)
    assert len({mutant.bug for mutant in draw_sample(1)}) == SAMPLE_SIZE


def test_every_retired_mutant_has_a_reason() -> None:
    lines = (ROOT / "tests" / "mutants" / "retired.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines]
    assert rows[0] == ["file", "old", "new", "why"]
    assert [row for row in rows if len(row) != 4 or not row[3]] == []
    named = {row[3].partition("same class of bug as: ")[2] for row in rows} - {""}
    assert named <= {mutant.bug for mutant in NAMED_BUGS}


def test_who_is_found_and_who_survives() -> None:
    """Mutants do not disturb each other; one that cannot be imported is neither found nor survives."""
    tests = ("tests/unit/test_snapshot_order.py",)
    file, old = "producer/sources/mysql/flavour.py", "return first is None or first >= started"
    mutants = [
        Mutant(file, old, "return first is None or first > started", tests),
        Mutant(file, old, "return first is None or started <= first", tests),
        Mutant(file, "_PARSE_ERROR = 1064", "raise ImportError", tests),
    ]
    assert [result.verdict for result in run(mutants, 2)] == ["found", "survived", "error"]
    with pytest.raises(ValueError, match="0 times"):
        list(run([Mutant(file, "no such text", "", tests)], 1))


def test_a_copy_has_all_that_a_test_may_read(tmp_path: Path) -> None:
    """Tests also read pages and settings; without these they fail without any mutant."""
    Copy(tmp_path / "0")
    known = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    named = [name for name in known.splitlines() if (ROOT / name).exists()]
    for name in (*named, "docs/how-to/add-a-target.md", "README.md", "tests/unit/test_mutants.py"):
        assert (tmp_path / "0" / name).is_file(), name
    assert not (tmp_path / "0" / ".git").exists()


FRESH = '''"""What it is."""
from dataclasses import dataclass

@dataclass(frozen=True)
class Lane:
    """Three changes."""
    size: int = 3

    def full(self, more: bool) -> bool:
        """Say so."""
        log.info("ä", size=1)
        if not self.open:
            raise ValueError(1)
        self.tell()
        return self.size >= 5 and more
'''


def test_fresh_mutants_change_what_runs_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "lanes").mkdir()
    (tmp_path / "lanes" / "lane.py").write_text(FRESH)
    found = list(changes(tmp_path, ("lanes",)))
    assert [(each.line, FRESH[each.start : each.end], each.text) for each in found] == [
        (7, "3", "4"),
        (12, "not self.open", "(self.open)"),
        (13, "raise ValueError(1)", "pass"),
        (14, "self.tell()", "pass"),
        (15, ">=", ">"),
        (15, "5", "6"),
        (15, "and", "or"),
    ]
    for each in found:
        compile(each.made(FRESH), "lane.py", "exec")


def test_every_survivor_is_one_that_may_be_drawn() -> None:
    """A reason holds for a line as it is: if the line has changed, the mutant needs a test or a new
    reason."""
    every = {mutant[:3] for mutant in drawn(ROOT, 10**6, 1)}
    assert [each for each in SURVIVORS if each[:3] not in every] == []
    assert all(each.why for each in SURVIVORS)


def test_every_limit_is_one_number_of_its_file() -> None:
    excused = Counter(
        (mutant.file, reported) for mutant in drawn(ROOT, 10**6, 1)
        if (reported := known_survivor(mutant)) is not None and reported.endswith("one more is as good")
    )  # fmt: skip
    expected = Counter((each.file, f"{each.why}: one more is as good") for each in LIMITS)
    assert excused == expected


def test_a_drawn_mutant_stands_once_in_its_file_and_has_tests() -> None:
    for mutant in drawn(ROOT, 40, 7):
        assert (ROOT / mutant.file).read_text().count(mutant.old) == 1
        assert mutant.old != mutant.new
        assert len(mutant.tests) > 2
        assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests)
    assert drawn(ROOT, 40, 7) == drawn(ROOT, 40, 7)
