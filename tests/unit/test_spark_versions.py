"""The supported versions of Spark, in setup.cfg, `check` and at the start of Spark."""

from __future__ import annotations

import configparser
import importlib.metadata
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.errors import SparkStartError, SparkVersionError
from consumer.process import spark_session
from consumer.spark import supported_versions as versions
from consumer.spark.supported_versions import format_minor_version, require_supported_spark
from rowlock.inspect import check
from schemas.config.model import SparkConfig
from tests.kits.apply import ROOT


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets the version of the installed PySpark; None: there is none."""

    def install(version: str | None) -> None:
        def read_version(name: str) -> str:
            assert name == "pyspark"
            if version is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(versions.importlib.metadata, "version", read_version)

    return install


def test_setup_cfg_has_the_range_that_check_accepts() -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    required = parser["options"]["install_requires"].split("\n")
    assert [each for each in required if each.startswith("pyspark")] == [versions.REQUIREMENT]


def test_the_support_matrix_names_the_range() -> None:
    for page in ("README.md", "README.zh.md", "docs/how-to/install.md"):
        text = (ROOT / page).read_text()
        for major, minor in (versions.OLDEST, versions.NEWEST):
            assert re.search(rf"\b{major}\.{minor}\.\d", text), page


@pytest.mark.parametrize("version", ["4.0.0", "4.0.5", "4.1.4", "4.2.1", "4.3.0", "4.3.0.dev1"])
def test_a_tested_minor_version_is_accepted(installed: Any, version: str) -> None:
    installed(version)
    assert require_supported_spark() == version


@pytest.mark.parametrize("version", ["3.5.9", "4.4.0", "4.10.0", "5.0.0", "main"])
def test_another_version_is_refused_with_the_command(installed: Any, version: str) -> None:
    installed(version)
    with pytest.raises(SparkVersionError) as refused:
        require_supported_spark()
    assert refused.value.problem.what == f"PySpark {version} is installed, and rowlock works with 4.0 to 4.3"
    assert refused.value.problem.action == "pip install 'pyspark>=4.0.0,<4.4'"


def test_check_and_start_refuse_a_missing_pyspark(installed: Any, tmp_path: Path) -> None:
    installed(None)
    config: Any = SimpleNamespace(spark=SparkConfig(), state_dir=tmp_path)
    (finding,) = check._yield_spark_findings(SparkConfig())
    assert (finding.level, finding.place, finding.message) == ("error", "spark", "PySpark is not installed")
    with pytest.raises(SparkVersionError):
        spark_session.start_spark(config)


def test_check_has_nothing_against_the_installed_pyspark() -> None:
    assert list(check._yield_spark_findings(SparkConfig())) == []


def test_a_master_that_does_not_answer_is_reported_with_the_version_it_must_have(
    installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(
            "An error occurred.\n: java.lang.IllegalStateException: Cannot call methods.\n\tat a.B"
        )

    installed("4.1.4")
    monkeypatch.setattr(spark_session, "start_session", fail)
    config: Any = SimpleNamespace(spark=SparkConfig(master="spark://h:7077"), state_dir=tmp_path)
    with pytest.raises(SparkStartError, match=r"no session on spark://h:7077.*Cannot call methods") as failed:
        spark_session.start_spark(config)
    assert "run Spark 4.1, because the agent's PySpark is 4.1.4" in failed.value.problem.action
    config.spark = SparkConfig()
    with pytest.raises(RuntimeError):
        spark_session.start_spark(config)


def test_an_address_of_the_driver_that_cannot_be_bound_has_its_own_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("An error occurred.\n: java.net.BindException: Cannot assign address\n\tat a.B")

    monkeypatch.setattr(spark_session, "start_session", fail)
    config: Any = SimpleNamespace(spark=SparkConfig(master="spark://h:7077"), state_dir=tmp_path)
    with pytest.raises(SparkStartError, match="BindException") as failed:
        spark_session.start_spark(config)
    assert "spark.driver.host" in failed.value.problem.action
    assert "run Spark" not in failed.value.problem.action


def test_the_minor_version_is_what_a_cluster_must_have() -> None:
    assert format_minor_version("4.1.4") == "4.1"
