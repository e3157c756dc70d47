"""A kind of target from another package is treated like rowlock's own, in every process; and what only one of
the two kinds of target obeys is refused for the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer.errors import TargetConfigError
from consumer.targets.dialect import load_dialect, open_progress, open_session, open_target
from schemas.config.kinds import targets as target_kinds
from schemas.config.kinds.targets import TARGET_KINDS
from schemas.config.model import TargetConfig
from tests.kits.configurations import GOOD, load, problems
from tests.stands import json_folder
from tests.stands.json_folder import JsonFolder, installed

JSON = GOOD.replace("type: postgres", "type: json").replace("${SECRET}", "x")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with the kind "json", and one whose kind cannot be loaded."""
    monkeypatch.setattr(target_kinds, "TARGET_KINDS", {**TARGET_KINDS})
    place = installed(tmp_path / "packages")
    with (place / "rowlock_json-1.dist-info" / "entry_points.txt").open("a") as file:
        file.write("broken = tests.not_there:KIND\n")
    monkeypatch.syspath_prepend(str(place))
    return place


def test_without_the_package_the_word_is_not_known(tmp_path: Path) -> None:
    assert problems(tmp_path, JSON) == [
        "12: targets.hq.type: 'json' is not known; one of 'mysql', 'mariadb', 'postgres', 'oracle', 'kafka'"
    ]


@pytest.mark.usefixtures("package")
def test_the_configuration_takes_the_word_of_an_installed_package(tmp_path: Path) -> None:
    target = load(tmp_path, JSON.replace("database: hq", f"database: {tmp_path / 'folder'}")).targets["hq"]
    assert target.type == "json"
    assert load_dialect(target) is json_folder.JSON_FOLDER
    assert isinstance(open_target(target, name="t"), JsonFolder)
    assert isinstance(open_progress(target, name="t"), JsonFolder)
    with pytest.raises(TargetConfigError, match="cannot query rows"):
        open_session(target, name="t")


@pytest.mark.usefixtures("package")
def test_a_package_that_cannot_be_loaded_is_named_as_what_is_wrong(tmp_path: Path) -> None:
    (line,) = problems(tmp_path, JSON.replace("type: json", "type: broken"))
    assert line.startswith(
        "12: targets.hq.type: 'broken' does not fit; repair the package that provides it: ModuleNotF"
    )


def test_a_word_that_several_packages_bring_is_refused(package: Path, tmp_path: Path) -> None:
    """Whichever came first would be taken, and nobody would know which one it was."""
    entries = package / "rowlock_json-1.dist-info" / "entry_points.txt"
    with entries.open("a") as file:
        file.write("json = another.package:KIND\n")
    (line,) = problems(tmp_path, JSON)
    assert "several packages bring 'json': another.package:KIND, tests.stands.json_folder:KIND" in line


def test_what_is_no_kind_is_refused(package: Path, tmp_path: Path) -> None:
    with (package / "rowlock_json-1.dist-info" / "entry_points.txt").open("a") as file:
        file.write("wrong = tests.stands.json_folder:JSON_FOLDER\n")
    (line,) = problems(tmp_path, JSON.replace("type: json", "type: wrong"))
    assert "tests.stands.json_folder:JSON_FOLDER is no TargetKind but Dialect" in line


@pytest.mark.usefixtures("package")
def test_what_the_other_kind_of_target_obeys_is_refused(tmp_path: Path) -> None:
    assert (
        load(tmp_path, JSON.replace("target: hq", "target: hq\n    commit_every: 2.5"))
        .pipelines["to-hq"]
        .commit_every
        == 2.5
    )
    assert problems(tmp_path, JSON.replace("target: hq", "target: hq\n    lanes: 8")) == [
        "22: pipelines.to-hq.lanes: a target of type 'json' takes whole batches and has no lanes; remove it"
    ]
    text = GOOD.replace("${SECRET}", "x").replace("target: hq", "target: hq\n    commit_every: 2.5")
    assert problems(tmp_path, text) == [
        (
            "22: pipelines.to-hq.commit_every: a target of type 'postgres' is committed to by each "
            "lane, as changes come; remove it"
        )
    ]


def test_a_kind_that_is_known_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process asks, some of them before their first row."""
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: pytest.fail("looked for"))
    target = TargetConfig(type="postgres", host="h", port=1, user="u", password="x", database="d")  # type: ignore[arg-type]
    assert load_dialect(target).name
