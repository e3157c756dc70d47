"""Which versions of PySpark `make test-spark-versions` tests."""

from __future__ import annotations

import pytest

from tests.kits.apply import ROOT
from tools import spark_versions
from tools.spark_versions import VersionUnavailableError, choose_versions, parse_newest

SHOWN = "pyspark (4.4.0)\nAvailable versions: 4.4.0, 4.3.9, 4.3.10, 4.3.0, 4.0.0, 3.5.9\n  INSTALLED: 4.0.0\n"


@pytest.mark.parametrize(
    ("own", "expected"),
    [("4.0.0", ["4.3.1"]), ("4.3.0", ["4.0.0"]), ("4.1.4", ["4.0.0", "4.3.1"])],
)
def test_the_versions_that_the_environment_does_not_have_are_tested(own: str, expected: list[str]) -> None:
    assert choose_versions(own, "4.3.1") == expected


def test_the_newest_version_is_one_that_is_supported() -> None:
    assert parse_newest(SHOWN) == "4.3.10"


@pytest.mark.parametrize(
    "shown", ["", "ERROR: No matching distribution found for pyspark", "Available versions: 3.5.9"]
)
def test_a_registry_without_it_is_reported(shown: str) -> None:
    with pytest.raises(VersionUnavailableError, match=r"no version 4\.3\.x"):
        parse_newest(shown)


def test_a_version_that_cannot_be_had_is_skipped_with_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(version: str) -> None:
        raise VersionUnavailableError(f"no file of {version}")

    monkeypatch.setattr(spark_versions, "_make_environment", fail)
    monkeypatch.delenv(spark_versions.REQUIRED, raising=False)
    assert spark_versions.main(["4.3.0"]) == 0
    line = "PySpark 4.3.0 is not tested, because it cannot be downloaded: no file of 4.3.0\n"
    assert capsys.readouterr().out == line
    monkeypatch.setenv(spark_versions.REQUIRED, "1")
    assert spark_versions.main(["4.3.0"]) == 1


def test_every_core_test_exists() -> None:
    for each in spark_versions.CORE_TESTS:
        path, _, name = each.partition("::")
        assert f"def {name.partition('[')[0]}" in (ROOT / path).read_text(), each
