"""No Java, too old a Java, a Java that does not run: each is told apart, with what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.errors import EmbeddedError
from deploy.fetch.java import find_java


def fake_java(folder: Path, output: str, code: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{output}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def test_no_java() -> None:
    with pytest.raises(EmbeddedError, match="no `java` in JAVA_HOME or on PATH") as caught:
        find_java()
    assert "install a Java runtime 17" in caught.value.remedy


@pytest.mark.parametrize(
    ("output", "version"),
    [('openjdk version "11.0.22" 2024-01-16', "11"), ('java version "1.8.0_402"', "8")],
)
def test_too_old_a_java(empty_path: Path, output: str, version: str) -> None:
    java = fake_java(empty_path, output)
    with pytest.raises(EmbeddedError, match=rf"{java} is version {version}; Kafka and Spark need 17"):
        find_java()


def test_a_java_that_says_nothing_sensible(empty_path: Path) -> None:
    fake_java(empty_path, "cannot open shared object file", code=127)
    with pytest.raises(EmbeddedError, match="cannot open shared object file"):
        find_java()


def test_java_home_comes_before_path(
    empty_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(empty_path, 'openjdk version "11.0.22"')
    expected = fake_java(tmp_path / "jdk" / "bin", 'openjdk version "21.0.2" 2024-01-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert find_java() == expected


def test_a_java_home_without_java_is_not_passed_over(
    empty_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(empty_path, 'openjdk version "21.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(EmbeddedError, match="no `java` in JAVA_HOME"):
        find_java()


def test_the_page_about_installation_names_the_package_of_the_message() -> None:
    with pytest.raises(EmbeddedError) as caught:
        find_java()
    package = re.search(r"openjdk-\S+-headless", caught.value.remedy)
    page = Path(__file__).parents[2] / "docs/how-to/install.md"
    assert package is not None
    assert f"`{package[0]}`" in page.read_text(encoding="utf-8")
