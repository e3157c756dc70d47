"""The archive for Spark's executors: what goes into it, for which hosts it is, and the command's messages."""

from __future__ import annotations

import ast
import gzip
import importlib.metadata
import io
import json
import os
import sys
import tarfile
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path, PurePosixPath

import pytest
from click.testing import CliRunner, Result
from packaging.requirements import Requirement

from consumer.spark.versions import SLOT_PACKAGES
from rowlock.cli import main
from rowlock.commands.spark import OWN_PYTHON
from rowlock.errors import CommandError
from rowlock.spark_package import installed
from rowlock.spark_package.archive import write_archive
from rowlock.spark_package.contents import (
    FROM_SPARK,
    NOT_FOR_SLOTS,
    Distribution,
    Manifest,
    Platform,
    choose_platform,
    is_editable,
    is_packed,
    select_distributions,
)
from rowlock.spark_package.installed import list_needed_distributions

ROOT = Path(__file__).resolve().parents[2]
MINOR = OWN_PYTHON.removeprefix("python")
HERE = Platform((2, 36))
MANIFEST = Manifest("1.2", "3.11", Platform((2, 28)), "4.0.0", {"b": "2", "a": "1"})


def select(own: tuple[str, ...], *others: Distribution, added: tuple[Distribution, ...] = ()) -> list[str]:
    known = {each.name: each for each in (*others, *added)}
    roots = [Distribution("rowlock", "1", own), *added]
    return [each.name for each in select_distributions(roots, known.get, "/venv/bin/python")]


# -- distributions


def test_requirements_are_followed_in_each_depth_and_sorted() -> None:
    b, c = Distribution("b", "1", ("a>=1", "c")), Distribution("c", "1", ("b",))
    assert select(("b>=1",), b, c, Distribution("a", "1")) == ["a", "b", "c"]


def test_requirement_of_an_extra_counts_if_the_extra_is_requested() -> None:
    driver = Distribution("d", "1", ('d-binary; extra == "binary"', 'd-pool; extra == "pool"'))
    parts = driver, Distribution("d-binary", "1"), Distribution("d-pool", "1")
    assert select(("d[binary]",), *parts) == ["d", "d-binary"]
    assert select(("d", "e"), *parts, Distribution("e", "1", ("d[pool]",))) == ["d", "d-pool", "e"]


def test_requirement_for_another_python_is_left_out() -> None:
    assert select(("a; python_version < '3'", "b; python_version > '3'"), Distribution("b", "1")) == ["b"]


def test_what_executors_have_and_what_slots_do_not_import_is_left_out() -> None:
    spark = Distribution("pyspark", "4", ("py4j",))
    pandas = Distribution("pandas", "3", ("pyspark", "rich"))
    assert select(("pyspark", "rich", "pandas"), spark, pandas, Distribution("rich", "1")) == [
        "pandas", "rich",
    ]  # fmt: skip


def test_distribution_that_adds_a_kind_of_target_is_packed_with_its_requirements() -> None:
    kind = Distribution("my-target", "1", ("rowlock>=0.1", "my-driver"))
    assert select((), Distribution("my-driver", "1"), added=(kind,)) == ["my-driver", "my-target"]


def test_missing_distribution_names_who_requires_it_and_the_command() -> None:
    with pytest.raises(CommandError) as caught:
        select(("a",), Distribution("a", "1", ("b>=2",)))
    assert (
        caught.value.problem.what == "b: not installed in this Python (/venv/bin/python), and a requires it"
    )
    assert caught.value.problem.remedy == "install it: /venv/bin/python -m pip install 'b>=2'"


def test_what_slots_import_is_packed() -> None:
    """A requirement that slots begin to import must not be among those that are left out."""
    packed = {each.name for each in list_needed_distributions()}
    owners = importlib.metadata.packages_distributions()
    files = [path for package in SLOT_PACKAGES for path in (ROOT / package).rglob("*.py")]
    imported = set[str]().union(*(list_imports(path.read_text()) for path in files))
    foreign = imported - sys.stdlib_module_names - set(SLOT_PACKAGES) - FROM_SPARK
    assert {"grpc", "psycopg", "confluent_kafka"} <= foreign
    assert {name for name in foreign if packed.isdisjoint(owners.get(name, ()))} == set()
    assert {"pandas", "pyarrow", "psycopg-binary"} <= packed, "PySpark or a driver imports it"
    assert packed.isdisjoint(FROM_SPARK | {"rowlock", "pytest", "mypy"})


def list_imports(text: str) -> set[str]:
    """Return the top-level packages that a module imports, also within functions."""
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names}


def test_what_is_left_out_is_a_requirement_of_rowlock() -> None:
    package = ConfigParser()
    package.read(ROOT / "setup.cfg")
    lines = package["options"]["install_requires"].split("\n")
    required = {Requirement(line).name for line in lines if line and line[0] != "#"}
    assert NOT_FOR_SLOTS - required == set(), "it needs no exception any more"


# -- files


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b.py", True),
        ("a/b.cpython-311-x86_64-linux-gnu.so", True),
        ("a.libs/libz-1234.so.1.3", True),
        ("a-1.dist-info/METADATA", True),
        ("a-1.dist-info/licenses/LICENSE", True),
        ("a/testing/tools.py", True),
        ("../../../bin/a", False),
        ("/etc/a", False),
        ("a/__pycache__/b.cpython-311.pyc", False),
        ("a/core/tests/test_b.py", False),
        ("a/include/b.h", False),
        ("a/b.pxd", False),
        ("distutils-precedence.pth", False),
        ("a-1.dist-info/RECORD", False),
        ("a-1.dist-info/direct_url.json", False),
    ],
)
def test_code_and_its_metadata_are_packed(path: str, expected: bool) -> None:
    assert is_packed(PurePosixPath(path)) is expected


def test_editable_installation_is_recognised_by_its_list() -> None:
    assert is_editable([PurePosixPath("a-1.dist-info/METADATA"), PurePosixPath("__editable__.a-1.pth")])
    assert not is_editable([PurePosixPath("a/__init__.py")])


# -- hosts


@pytest.mark.parametrize(
    ("wheels", "expected"),
    [
        ([["py3-none-any"]], Platform((0, 0))),
        ([["cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_28_x86_64"]], Platform((2, 17))),
        ([["cp311-cp311-manylinux_2_28_x86_64"], ["cp311-abi3-manylinux2014_x86_64"]], Platform((2, 28))),
        ([["cp311-cp311-manylinux_2_5_x86_64.manylinux1_x86_64"]], Platform((2, 5))),
        ([["cp311-cp311-linux_x86_64"], ["cp311-cp311-manylinux_2_28_x86_64"]], HERE),
        ([["cp311-cp311-musllinux_1_2_x86_64"]], Platform((1, 2), "musllinux")),
        ([[]], HERE),
    ],
)
def test_hosts_need_the_newest_c_library_that_a_wheel_needs(
    wheels: list[list[str]], expected: Platform
) -> None:
    assert choose_platform(wheels, HERE) == expected


def test_platform_is_described_in_words() -> None:
    assert Platform((2, 28)).describe_hosts() == "x86_64 with glibc 2.28 or newer"
    assert str(Platform((1, 2), "musllinux", "aarch64")) == "musllinux_1_2_aarch64"


# -- archive


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    texts = {"b/x.py": "x = 1\n", "b/y.sh": "#!/bin/sh\n", "a.py": ""}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return {name: tmp_path / name for name in texts}


def test_same_files_give_the_same_bytes(files: dict[str, Path], tmp_path: Path) -> None:
    first, second = tmp_path / "1.tar.gz", tmp_path / "2.tar.gz"
    write_archive(first, files, MANIFEST)
    os.utime(files["a.py"], (1, 1))
    files["a.py"].chmod(0o600)
    write_archive(second, dict(reversed(files.items())), MANIFEST)
    assert first.read_bytes() == second.read_bytes()


def test_archive_has_files_sorted_with_manifest_and_version(files: dict[str, Path], tmp_path: Path) -> None:
    files["b/y.sh"].chmod(0o750)
    write_archive(tmp_path / "p.tar.gz", files, MANIFEST)
    with tarfile.open(tmp_path / "p.tar.gz") as archive:
        members = {member.name: (member.mode, member.uid) for member in archive}
        assert archive.extractfile("b/x.py").read() == b"x = 1\n"  # type: ignore[union-attr]
        manifest = json.load(archive.extractfile("rowlock-package.json"))  # type: ignore[arg-type]
    assert list(members) == [
        "a.py", "b/x.py", "b/y.sh", "rowlock-1.2.dist-info/METADATA", "rowlock-package.json",
    ]  # fmt: skip
    assert (members["b/x.py"], members["b/y.sh"]) == ((0o644, 0), (0o755, 0))
    assert manifest == {
        "version": 1, "rowlock": "1.2", "python": "3.11", "platform": "manylinux_2_28_x86_64",
        "pyspark": "4.0.0", "distributions": {"a": "1", "b": "2"},
    }  # fmt: skip


def test_failed_write_leaves_the_existing_archive(files: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "p.tar.gz"
    output.write_text("old")
    files["a.py"].unlink()
    with pytest.raises(CommandError, match=r"a\.py cannot be read: No such file"):
        write_archive(output, files, MANIFEST)
    assert output.read_text() == "old"
    assert [each for each in tmp_path.iterdir() if each.name.endswith(".new")] == []


# -- what is installed


class FakeInstallation(importlib.metadata.Distribution):
    """An installed distribution `a`, version 1, whose list of files is `record`."""

    def __init__(self, folder: Path, record: str | None) -> None:
        self._folder = folder
        self._texts = {"METADATA": "Metadata-Version: 2.1\nName: a\nVersion: 1\n", "RECORD": record}

    def read_text(self, filename: str) -> str | None:
        return self._texts.get(filename)

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        return self._folder / path


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (None, r"a 1: it was installed without a list of its files \(RECORD\).*virtual environment"),
        ("__editable__.a-1.pth,,\n", "a 1: it is an editable installation.*without --editable"),
        ("a/lost.py,,\n", r"a: its installed file .*/a/lost\.py does not exist.*'a==1' --force-reinstall"),
    ],
    ids=["no list", "editable", "file is missing"],
)
def test_distribution_that_cannot_be_packed_is_reported(
    record: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeInstallation(tmp_path, record)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: fake)
    with pytest.raises(CommandError, match=expected):
        installed.list_files([Distribution("a", "1")])


def test_own_packages_are_packed_without_what_a_wheel_lacks() -> None:
    names = set(installed.list_files([]))
    assert {"consumer/slots/runner.py", "schemas/envelope.v1.schema.json", "schemas/py.typed"} <= names
    assert {name.partition("/")[0] for name in names} == set(SLOT_PACKAGES)
    assert not any("golden" in name or "__pycache__" in name for name in names)


# -- the command


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, files: dict[str, Path], tmp_path: Path) -> Callable[..., Result]:
    """Return a function that runs `rowlock spark package` in an installation of three small files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installed, "list_files", lambda _: files)
    return lambda *words: CliRunner().invoke(main, ["spark", "package", *words])


def test_command_prints_size_hosts_and_configuration(run: Callable[..., Result], tmp_path: Path) -> None:
    ended = run("--python", "/opt/python/bin/python3")
    assert ended.exit_code == 0, ended.output
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("written: rowlock-spark.tar.gz (")
    assert lines[1].startswith(f"for executors with Python {MINOR}, Spark 4")
    assert lines[2:] == [
        "add to the configuration:",
        "  spark:",
        f"    package: {tmp_path}/rowlock-spark.tar.gz",
        f"    python: /opt/python/bin/python3  # each executor's host needs Python {MINOR} under this name",
    ]
    content = gzip.decompress((tmp_path / "rowlock-spark.tar.gz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert "rowlock-package.json" in archive.getnames()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--output", "none/p.tar.gz"], "none/p.tar.gz cannot be written: No such file or directory: name"),
        (["--output", "p.zip"], "p.zip: Spark unpacks an archive only if its name ends with .tar.gz or .tgz"),
        (["--python", "python3.2"], "--python python3.2: the files that are installed here are for python3."),
    ],
)  # fmt: skip
def test_command_refuses_with_cause_and_remedy(
    words: list[str], expected: str, run: Callable[..., Result]
) -> None:
    ended = run(*words)
    assert ended.exit_code == 2
    assert ended.stderr.splitlines()[-1].startswith(f"rowlock: {expected}")
    assert ended.stdout == ""
