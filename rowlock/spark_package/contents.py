"""The contents of the archive: which distributions, which of their files, and for which hosts they are."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from packaging.requirements import Requirement
from packaging.tags import parse_tag
from packaging.utils import canonicalize_name

from rowlock.errors import CommandError

MANIFEST_NAME = "rowlock-package.json"

NOT_FOR_SLOTS = frozenset(
    {
        "click", "httpx", "packaging", "rich",  # the command line
        "fastapi", "prometheus-client", "uvicorn",  # the coordinator's REST
        "mysql-replication", "zstandard",  # capture
    }
)  # fmt: skip
"""Requirements of rowlock that no slot imports. They are packed if another distribution requires them."""
FROM_SPARK = frozenset({"pyspark", "py4j"})
"""Distributions that executors have from their own Spark, and that must not take its place."""

_LEFT_OUT_FOLDERS = frozenset({"__pycache__", "tests", "include"})
_LEFT_OUT_SUFFIXES = frozenset({".pyc", ".pyi", ".pyx", ".pxd", ".pxi", ".h", ".hpp", ".a", ".pth"})
_LEFT_OUT_METADATA = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
_OWN_SUFFIXES = frozenset({".py", ".json", ".yaml"})

_PLATFORM = re.compile(r"(manylinux|musllinux)_(\d+)_(\d+)_(\w+)")
_OLD_PLATFORMS = {"manylinux1": "manylinux_2_5", "manylinux2010": "manylinux_2_12"}
_OLD_PLATFORMS["manylinux2014"] = "manylinux_2_17"
_LIBRARIES = {"manylinux": "glibc", "musllinux": "musl"}


@dataclass(frozen=True, slots=True)
class Distribution:
    """A project of a package index in the version that is installed."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    """Its requirements, as its metadata has them: with markers, and with those of all extras."""


@dataclass(frozen=True, order=True, slots=True)
class Platform:
    """The hosts on which native code runs: those with this C library, or a newer one."""

    library: tuple[int, int]
    """The version of the C library."""
    kind: str = "manylinux"
    """`manylinux`: the library is glibc. `musllinux`: musl."""
    machine: str = "x86_64"

    def __str__(self) -> str:
        return f"{self.kind}_{self.library[0]}_{self.library[1]}_{self.machine}"

    def describe_hosts(self) -> str:
        """Return in words on which hosts the code runs."""
        version = ".".join(map(str, self.library))
        return f"{self.machine} with {_LIBRARIES[self.kind]} {version} or newer"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The archive's description of itself, the file `rowlock-package.json`."""

    rowlock: str
    python: str
    """Major and minor version, as in "3.11"."""
    platform: Platform
    pyspark: str
    """The version of Spark that the agent has, which executors must have, too."""
    distributions: Mapping[str, str]
    """Name → version."""

    def encode(self) -> bytes:
        """Return the file's contents; the same manifest always has the same bytes."""
        fields = {
            "version": 1,
            "rowlock": self.rowlock,
            "python": self.python,
            "platform": str(self.platform),
            "pyspark": self.pyspark,
            "distributions": dict(sorted(self.distributions.items())),
        }
        return (json.dumps(fields, indent=2) + "\n").encode()


def select_distributions(
    roots: Iterable[Distribution], find: Callable[[str], Distribution | None], python: str
) -> list[Distribution]:
    """Return the distributions that slots need, sorted by name.

    `roots`: rowlock, and the distributions that add kinds of targets to it. rowlock itself is not returned.
    `find`: returns the installed distribution of a name. `python`: this Python, for remedies.
    Raises CommandError if one is not installed.
    """
    selected: dict[str, Distribution] = {}
    expanded: set[tuple[str, frozenset[str]]] = set()
    waiting = deque[tuple[Distribution, frozenset[str]]]()
    for root in roots:
        waiting.append((root, frozenset()))
        if canonicalize_name(root.name) != "rowlock":
            selected[canonicalize_name(root.name)] = root
    while waiting:
        owner, extras = waiting.popleft()
        owner_name = canonicalize_name(owner.name)
        if (owner_name, extras) in expanded:
            continue
        expanded.add((owner_name, extras))
        for requirement in _list_requirements(owner, extras):
            name = canonicalize_name(requirement.name)
            if name in FROM_SPARK or name == "rowlock" or (owner_name == "rowlock" and name in NOT_FOR_SLOTS):
                continue
            if (found := find(name)) is None:
                raise CommandError(
                    f"{name}: not installed in this Python ({python}), and {owner.name} requires it",
                    f"install it: {python} -m pip install '{requirement}'",
                )
            selected[name] = found
            waiting.append((found, frozenset(requirement.extras)))
    return [selected[name] for name in sorted(selected)]


def _list_requirements(owner: Distribution, extras: frozenset[str]) -> Sequence[Requirement]:
    """Return the requirements of `owner` that apply to this Python and to `extras`."""
    requirements = map(Requirement, owner.requires)
    return [
        each
        for each in requirements
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def is_packed(path: PurePosixPath) -> bool:
    """Return whether a file of a distribution goes into the archive: not scripts, bytecode, tests, and what
    only a compiler reads.

    `path`: as in RECORD, relative to the folder with the packages.
    """
    if path.is_absolute() or path.parts[0] == "..":
        return False
    if path.suffix in _LEFT_OUT_SUFFIXES or not _LEFT_OUT_FOLDERS.isdisjoint(path.parts[:-1]):
        return False
    return not (path.parts[0].endswith(".dist-info") and path.name in _LEFT_OUT_METADATA)


def is_own_file_packed(path: PurePosixPath) -> bool:
    """Return whether a file of rowlock's own packages goes into the archive: what a wheel has, too."""
    return path.suffix in _OWN_SUFFIXES or path.name == "py.typed"


def is_editable(paths: Iterable[PurePosixPath]) -> bool:
    """Return whether a distribution's files, as in RECORD, only refer to a source tree elsewhere."""
    return any(path.name.startswith("__editable__") and path.suffix == ".pth" for path in paths)


def choose_platform(wheels: Iterable[Iterable[str]], here: Platform) -> Platform:
    """Return the platform on which all wheels run. `wheels`: the tags of each, as its file WHEEL has them.

    A wheel that was built on this machine needs the C library of this machine, `here`.
    """
    needed = [_choose_oldest(tags, here) for tags in wheels]
    return max(
        (each for each in needed if each is not None), default=Platform((0, 0), here.kind, here.machine)
    )


def _choose_oldest(tags: Iterable[str], here: Platform) -> Platform | None:
    """Return the oldest platform of a wheel's tags; None: the wheel runs on any."""
    names = {tag.platform for text in tags for tag in parse_tag(text)}
    if "any" in names:
        return None
    return min(filter(None, map(parse_platform, names)), default=here)


def parse_platform(name: str) -> Platform | None:
    """Return the platform of a tag; None: the tag does not name the version of a C library."""
    for old, new in _OLD_PLATFORMS.items():
        name = name.replace(f"{old}_", f"{new}_")
    if (match := _PLATFORM.fullmatch(name)) is None:
        return None
    kind, major, minor, machine = match.groups()
    return Platform((int(major), int(minor)), kind, machine)
