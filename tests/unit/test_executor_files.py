"""The files that a cluster's slots need: what is refused, by `check` and by the start of Spark."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.errors import SparkStartError
from consumer.process import spark_session
from consumer.process.spark_slots import SparkSlots
from consumer.reporting.protocol import LineWriter
from consumer.slots.pool import SlotPool
from consumer.spark.executor_files import read_executor_token, require_package
from rowlock.inspect import check
from schemas.config.spark import MIN_TOKEN_LENGTH, SparkConfig

TOKEN = "0123456789abcde~"
REFUSED_TOKENS = {
    b"": "has 0 characters, and needs 16",
    b" \n\t ": "has 0 characters, and needs 16",
    TOKEN[1:].encode() + b"\n": "has 15 characters, and needs 16",
    "0123456789abcdé_______".encode(): "has other than printable ASCII characters",
    b"\xff" * 20: "has other than printable ASCII characters",
    b"0123456789abcdef\n0123456789abcdef": "has other than printable ASCII characters",
    b"0123456789abcdef\x7f": "has other than printable ASCII characters",
}


def make_cluster(token: Path | None, package: Path | None = None) -> SparkConfig:
    return SparkConfig.model_validate(
        {
            "master": "spark://m:7077", "driver": {"host": "127.0.0.1"}, "executor_token_file": token,
            "package": package,
        }
    )  # fmt: skip


def test_a_token_is_read_without_the_white_space_around_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"  {TOKEN}\r\n")
    assert len(TOKEN) == MIN_TOKEN_LENGTH
    assert read_executor_token(file) == TOKEN


@pytest.mark.parametrize(("content", "seen"), REFUSED_TOKENS.items())
def test_a_text_that_is_no_token_is_refused(tmp_path: Path, content: bytes, seen: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(SparkStartError) as refused:
        read_executor_token(file)
    assert refused.value.problem.what == f"the token in {file} {seen}"
    assert "openssl rand -hex 32" in refused.value.problem.action


@pytest.mark.parametrize(("name", "why"), [("", "Is a directory"), ("lost", "No such file or directory")])
def test_files_that_cannot_be_read_are_named(tmp_path: Path, name: str, why: str) -> None:
    file = tmp_path / name
    for require, remedy in (
        (read_executor_token, "openssl rand"),
        (require_package, "rowlock spark package"),
    ):
        with pytest.raises(SparkStartError) as refused:
            require(file)
        assert refused.value.problem.what.startswith(f"cannot read {file} ({why})")
        assert remedy in refused.value.problem.action


def test_check_names_each_file_that_a_cluster_lacks(tmp_path: Path) -> None:
    token, package = tmp_path / "token", tmp_path / "rowlock-spark.tar.gz"
    token.write_text("short")
    found = list(check._yield_spark_findings(make_cluster(token, package)))
    assert [(each.level, each.place) for each in found] == [("error", "spark")] * 2
    assert [str(file) in each.message for each, file in zip(found, (token, package), strict=True)] == [
        True
    ] * 2
    assert all(each.remedy for each in found)
    token.write_text(TOKEN)
    package.touch()
    assert list(check._yield_spark_findings(make_cluster(token, package))) == []


def test_a_local_master_needs_no_files(tmp_path: Path) -> None:
    local = SparkConfig(executor_token_file=tmp_path / "token", package=tmp_path / "rowlock-spark.tar.gz")
    assert list(check._yield_spark_findings(local)) == []
    make_slots(local, tmp_path).close()


@pytest.mark.parametrize("lacking", ["token", "package"])
def test_spark_is_not_started_without_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    for name in {"token", "package"} - {lacking}:
        (tmp_path / name).write_text(TOKEN)
    monkeypatch.setattr(spark_session, "start_session", lambda *_: pytest.fail("Spark is started"))
    config: Any = SimpleNamespace(
        spark=make_cluster(tmp_path / "token", tmp_path / "package"), state_dir=tmp_path
    )
    with pytest.raises(SparkStartError, match=f"cannot read {tmp_path / lacking} "):
        spark_session.start_spark(config)


def test_slots_of_a_cluster_do_not_begin_with_an_empty_token(tmp_path: Path) -> None:
    (tmp_path / "token").touch()
    with pytest.raises(SparkStartError, match="has 0 characters"):
        make_slots(make_cluster(tmp_path / "token"), tmp_path)


def make_slots(spark: SparkConfig, folder: Path) -> SparkSlots:
    """Return the slots of a Spark that is not asked for anything."""
    session: Any = SimpleNamespace(count_cores=lambda: 1)
    lines = LineWriter(io.StringIO())
    return SparkSlots(SlotPool(), session, spark, folder, threading.Event(), lines=lines)
