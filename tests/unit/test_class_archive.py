"""The archive of Spark's classes: where it lies, when it is used, when it is made anew."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from consumer.spark import class_archive
from consumer.spark.query import build_session_settings
from rowlock.cli import main


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return tmp_path


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return where each archive was made, one after the other."""
    made: list[Path] = []

    def run(_folder: Path, archive: Path) -> None:
        archive.write_text(f"classes {len(made)}")
        made.append(archive)

    monkeypatch.setattr(class_archive, "_run_spark", run)
    return made


def _options() -> str:
    common = {"master": "local[2,4]", "memory": "1g", "local_dir": "/d", "log4j": None}
    settings = build_session_settings(classes=class_archive.list_archive_options(), **common)  # type: ignore[arg-type]
    return settings["spark.driver.extraJavaOptions"]


def test_java_is_told_of_an_archive_that_is_there(place: Path) -> None:
    assert "SharedArchiveFile" not in _options()
    (place / "spark-classes.jsa").write_text("classes")
    assert f"-XX:SharedArchiveFile={place / 'spark-classes.jsa'}" in _options().split()


@pytest.mark.usefixtures("place")
def test_it_is_made_once_and_anew_for_another_java(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "_describe_inputs", lambda: "one Java")
    assert [class_archive.make_class_archive(), class_archive.make_class_archive()] == [True, False]
    monkeypatch.setattr(class_archive, "_describe_inputs", lambda: "another Java")
    assert [class_archive.make_class_archive(), class_archive.make_class_archive()] == [True, False]
    assert class_archive.archive_file().read_text() == "classes 1"
    assert len(runs) == 2


@pytest.mark.usefixtures("runs")
def test_what_was_made_halfway_is_not_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_folder: Path, archive: Path) -> None:
        archive.write_text("half")
        raise RuntimeError("Java wrote no archive of its classes")

    monkeypatch.setattr(class_archive, "_describe_inputs", lambda: "a Java")
    class_archive.make_class_archive()
    monkeypatch.setattr(class_archive, "_describe_inputs", lambda: "another Java")
    monkeypatch.setattr(class_archive, "_run_spark", broken)
    with pytest.raises(RuntimeError):
        class_archive.make_class_archive()
    assert "SharedArchiveFile" not in _options()
    assert [each.suffix for each in place.iterdir()] == [".txt"], "and nothing of it lies about"


@pytest.mark.usefixtures("runs")
def test_prepare_spark_makes_the_archive_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "_describe_inputs", lambda: "one Java")
    shown = [CliRunner().invoke(main, ["spark", "prepare"]).stdout for _ in range(2)]
    file = place / "spark-classes.jsa"
    assert shown == [f"made {file}\n", f"up to date: {file}\n"]


@pytest.mark.usefixtures("place")
def test_prepare_spark_reports_why_there_is_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(class_archive, "_describe_inputs", refuse)
    ended = CliRunner().invoke(main, ["spark", "prepare"])
    assert ended.exit_code == 2
    assert "there is no archive of Spark's classes: [Errno 13] Permission denied" in ended.stderr
    assert "Spark works without it" in ended.stderr
