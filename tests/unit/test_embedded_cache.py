"""The download cache: complete or absent, built once, checked, and clear about a full disk."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from deploy.errors import EmbeddedError
from deploy.fetch import cache, ivy


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROWLOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_lies_outside_the_work_tree_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROWLOCK_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.cache_dir() == Path("/somewhere/rowlock")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_dir() == Path.home() / ".cache" / "rowlock"


def test_two_first_runs_at_once_build_once(folder: Path) -> None:
    built: list[str] = []
    both_here = threading.Barrier(2)

    def build(staging: Path) -> None:
        built.append(staging.name)
        (staging / "file").write_text("whole")

    def first_run() -> None:
        both_here.wait()
        cache.ensure_cached("thing-1", build, need=0)

    runs = [threading.Thread(target=first_run) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(built) == 1
    assert (folder / "thing-1" / "file").read_text() == "whole"


def test_a_run_that_waits_for_the_download_of_another_one_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cache, "WAIT_LINE_EVERY_S", 0.2)
    monkeypatch.setattr(cache, "CACHE_LOCK_POLL_S", 0.05)
    begun = threading.Event()

    def build(_: Path) -> None:
        begun.set()
        time.sleep(0.5)  # the slow download

    first = threading.Thread(target=lambda: cache.ensure_cached("thing-1", build, need=0))
    first.start()
    begun.wait()
    assert cache.ensure_cached("thing-1", lambda _: pytest.fail("twice"), need=0).is_dir()
    first.join()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "waiting for another process, which is downloading thing-1 (0 s)"
    assert 2 <= len(lines) <= 4


def test_a_failed_build_leaves_nothing_and_can_be_repeated(folder: Path) -> None:
    def fail(staging: Path) -> None:
        (staging / "half").touch()
        raise EmbeddedError("x", "y", "z")

    with pytest.raises(EmbeddedError):
        cache.ensure_cached("thing-1", fail, need=0)
    assert not [path for path in folder.iterdir() if path.is_dir()]
    assert cache.ensure_cached("thing-1", lambda staging: None, need=0).is_dir()


def test_what_a_killed_run_left_is_not_used(folder: Path) -> None:
    (folder / ".thing-1.partial").mkdir(parents=True)
    (folder / ".thing-1.partial" / "half").touch()
    assert not list(cache.ensure_cached("thing-1", lambda staging: None, need=0).iterdir())


def test_a_full_disk_is_refused_before_the_download(folder: Path) -> None:
    def build(_: Path) -> None:
        raise AssertionError("must not begin")

    with pytest.raises(EmbeddedError, match=r"MB are free; downloading thing-1 needs \d+ MB") as caught:
        cache.ensure_cached("thing-1", build, need=1 << 60)
    assert "ROWLOCK_CACHE" in caught.value.remedy


def test_an_error_while_writing_names_the_cache(folder: Path) -> None:
    def build(_: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(EmbeddedError, match="No space left on device") as caught:
        cache.ensure_cached("thing-1", build, need=0)
    assert str(folder) in caught.value.blame


def test_a_cache_that_cannot_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ROWLOCK_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(EmbeddedError, match="cannot create"):
        cache.ensure_cached("thing-1", lambda staging: None, need=0)


@pytest.fixture
def one_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A group `g` of one file `a.jar` that must hold `right`; returns the folder that it is looked for in."""
    sha256 = "ee3ac7b4eb4a1b1c0b2b9b3d4e2cdb2f" * 2
    pins = tmp_path / "pins.json"
    pins.write_text(json.dumps({"g": {"a.jar": {"size": 5, "sha256": sha256}}}))
    monkeypatch.setattr(ivy, "CHECKSUMS", pins)
    (tmp_path / "got").mkdir()
    return tmp_path / "got"


def test_an_artifact_that_is_not_the_pinned_one(one_pinned: Path) -> None:
    (one_pinned / "a.jar").write_text("wrong")
    with pytest.raises(EmbeddedError, match=r"its sha256 is .*, pinned is"):
        ivy.verify_pinned_files("g", one_pinned)


def test_an_artifact_that_did_not_arrive(one_pinned: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"a\.jar did not arrive"):
        ivy.verify_pinned_files("g", one_pinned)


def test_an_artifact_that_nobody_pinned_is_removed(one_pinned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ivy, "load_pinned_files", lambda _: {})
    (one_pinned / "b.jar").write_text("unknown")
    ivy.verify_pinned_files("g", one_pinned)
    assert not list(one_pinned.iterdir())


def test_every_download_is_pinned() -> None:
    for group in ("kafka-4.1.0", "mariadb-11.4.5", "h2-2.3.232"):
        assert ivy.load_pinned_files(group)
        assert all(len(each.sha256) == 64 and each.size > 0 for each in ivy.load_pinned_files(group).values())
