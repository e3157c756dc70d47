"""The distributions and packages that are installed here, as the archive needs them."""

from __future__ import annotations

import csv
import importlib.metadata
import importlib.util
import platform
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import rowlock
from consumer.spark.supported_versions import REQUIREMENT
from consumer.spark.versions import SLOT_PACKAGES
from rowlock.errors import CommandError
from rowlock.spark_package.contents import (
    Distribution,
    Manifest,
    Platform,
    choose_platform,
    is_editable,
    is_own_file_packed,
    is_packed,
    parse_platform,
    select_distributions,
)
from schemas.config.kinds.targets import ENTRY_POINTS

PYTHON_MINOR = "{}.{}".format(*sys.version_info)


def list_needed_distributions() -> list[Distribution]:
    """Return the installed distributions that slots need. Raises CommandError if one is missing."""
    own = find_distribution("rowlock")
    if own is None:
        raise CommandError(
            f"rowlock: not installed in this Python ({sys.executable}), so its requirements are not known",
            "install the wheel or the source tree with pip, and use the `rowlock` of that environment",
        )
    added = {
        point.dist.name: _describe_distribution(point.dist)
        for point in importlib.metadata.entry_points(group=ENTRY_POINTS)
        if point.dist is not None
    }
    return select_distributions([own, *added.values()], find_distribution, sys.executable)


def find_distribution(name: str) -> Distribution | None:
    """Return the installed distribution of a name; None: there is none."""
    try:
        return _describe_distribution(importlib.metadata.distribution(name))
    except importlib.metadata.PackageNotFoundError:
        return None


def _describe_distribution(found: importlib.metadata.Distribution) -> Distribution:
    return Distribution(found.name, found.version, tuple(found.requires or ()))


def read_manifest(distributions: list[Distribution]) -> Manifest:
    """Return the manifest of an archive with these distributions. Raises CommandError without PySpark."""
    pyspark = find_distribution("pyspark")
    if pyspark is None:
        raise CommandError(
            f"pyspark: not installed in this Python ({sys.executable}), so the version that executors need "
            "is not known",
            f"install what rowlock requires: {sys.executable} -m pip install '{REQUIREMENT}'",
        )
    return Manifest(
        rowlock=rowlock.__version__,
        python=PYTHON_MINOR,
        platform=choose_platform(map(_read_tags, distributions), _read_own_platform()),
        pyspark=pyspark.version,
        distributions={each.name: each.version for each in distributions},
    )


def _read_tags(distribution: Distribution) -> list[str]:
    """Return the tags of the wheel from which a distribution was installed."""
    text = importlib.metadata.distribution(distribution.name).read_text("WHEEL") or ""
    return [line.removeprefix("Tag:").strip() for line in text.splitlines() if line.startswith("Tag:")]


def _read_own_platform() -> Platform:
    machine = sysconfig.get_platform().partition("-")[2].replace("-", "_")
    library, version = platform.libc_ver()
    kind = "manylinux" if library == "glibc" else "musllinux"
    own = parse_platform(f"{kind}_{version.replace('.', '_')}_{machine}")
    return own or Platform((0, 0), kind, machine)


def list_files(distributions: list[Distribution]) -> dict[str, Path]:
    """Return the files of distributions and of rowlock's own packages: name in the archive → file.

    Raises CommandError if files of a distribution are not known, or not there.
    """
    files = {str(name): file for each in distributions for name, file in _list_distribution_files(each)}
    return files | {str(name): file for package in SLOT_PACKAGES for name, file in _list_own_files(package)}


def _list_distribution_files(distribution: Distribution) -> Iterator[tuple[PurePosixPath, Path]]:
    found = importlib.metadata.distribution(distribution.name)
    record = found.read_text("RECORD")  # its `files` leave out missing ones since Python 3.12
    requirement = f"{distribution.name}=={distribution.version}"
    reinstall = f"install it again: {sys.executable} -m pip install '{requirement}' --force-reinstall"
    if record is None:
        raise CommandError(
            f"{distribution.name} {distribution.version}: it was installed without a list of its files "
            "(RECORD), as packages of an operating system are",
            "install rowlock with pip into a virtual environment, and use its command `rowlock`",
        )
    listed = [PurePosixPath(row[0]) for row in csv.reader(record.splitlines())]
    if is_editable(listed):
        raise CommandError(
            f"{distribution.name} {distribution.version}: it is an editable installation, whose files are in "
            "a source tree",
            f"install it without --editable into this Python ({sys.executable})",
        )
    for path in filter(is_packed, listed):
        file = Path(str(found.locate_file(path)))
        if not file.is_file():
            raise CommandError(f"{distribution.name}: its installed file {file} does not exist", reinstall)
        yield path, file


def _list_own_files(package: str) -> Iterator[tuple[PurePosixPath, Path]]:
    """Yield the files of one of rowlock's packages, wherever this Python imports it from."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise CommandError(
            f"rowlock: its package {package} is not found in this Python ({sys.executable})",
            "install the wheel or the source tree with pip",
        )
    folder = Path(spec.origin).parent
    for init in folder.rglob("__init__.py"):
        for file in init.parent.iterdir():
            name = PurePosixPath(file.relative_to(folder.parent).as_posix())
            if file.is_file() and is_own_file_packed(name):
                yield name, file
