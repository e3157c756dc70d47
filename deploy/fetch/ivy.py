"""Downloads Java artifacts with the Ivy that PySpark contains, and compares them with the pinned
checksums.

Ivy reads its own standard settings, so no registry is named here; ROWLOCK_IVY_SETTINGS names another
settings file (for example of a mirror inside a company). The pinned artifacts are in checksums.json.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deploy.errors import EmbeddedError
from deploy.fetch.java import find_java
from deploy.fetch.progress import measure_folder_size, watch_process
from deploy.guard.processes import release_process, spawn_process

CHECKSUMS = Path(__file__).with_name("checksums.json")
_NETWORK = (
    "check the network (a mirror: ROWLOCK_IVY_SETTINGS=<Ivy settings file>) and run it "
    "again; nothing half-done stays"
)


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One Maven artifact; with `transitive`, also all of its dependencies."""

    group: str
    artifact: str
    version: str
    transitive: bool = False

    def to_xml(self) -> str:
        return (
            f'<dependency org="{self.group}" name="{self.artifact}" rev="{self.version}"'
            f' conf="default->default" transitive="{str(self.transitive).lower()}"/>'
        )


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """The properties that a downloaded file must have."""

    name: str
    size: int
    sha256: str


def load_pinned_files(group: str) -> dict[str, PinnedFile]:
    """Return the pinned files of one group (a folder of the cache), by file name."""
    files = json.loads(CHECKSUMS.read_text(encoding="utf-8"))[group]
    return {name: PinnedFile(name, **facts) for name, facts in files.items()}


def download_size(group: str) -> int:
    return sum(each.size for each in load_pinned_files(group).values())


def retrieve_jars(group: str, coordinates: Iterable[Coordinate], target: Path) -> None:
    """Download the coordinates' jars into `target` and verify each."""
    java = find_java()
    with tempfile.TemporaryDirectory(prefix=".ivy-", dir=target.parent) as scratch:
        module = Path(scratch, "ivy.xml")
        module.write_text(_render_module(coordinates), encoding="utf-8")
        _run_ivy(group, _build_command(java, Path(scratch), module, target), Path(scratch))
    verify_pinned_files(group, target)


def find_pyspark_jars() -> Path:
    """Return the folder of PySpark's own jars, which include Ivy and a logging back end for Kafka."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EmbeddedError(
            "the Python environment", "PySpark is not installed", "install rowlock with its dependencies"
        )
    return Path(spec.origin).parent / "jars"


def _render_module(coordinates: Iterable[Coordinate]) -> str:
    dependencies = "".join(each.to_xml() for each in coordinates)
    return (
        '<ivy-module version="2.0"><info organisation="rowlock" module="embedded"/>'
        "<configurations><conf "
        f'name="default"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>'
    )


def _build_command(java: Path, scratch: Path, module: Path, target: Path) -> list[str]:
    """Return the command, without `-types jar`, which would leave out artifacts of type bundle that
    Kafka needs to start.
    """
    settings = os.environ.get("ROWLOCK_IVY_SETTINGS")
    return [
        str(java),
        "-cp",
        f"{find_pyspark_jars()}/*",
        "org.apache.ivy.Main",
        *(["-settings", settings] if settings else []),
        *("-cache", f"{scratch}/cache", "-ivy", str(module), "-confs", "default"),
        *("-retrieve", f"{target}/[artifact]-[revision].[ext]"),
    ]


def _run_ivy(group: str, command: list[str], scratch: Path) -> None:
    log = scratch / "ivy.log"
    with log.open("wb") as output:
        process = spawn_process(command, output=output)
    try:
        watch_process(
            f"downloading {group}",
            process,
            download_size(group),
            lambda: measure_folder_size(scratch / "cache"),
        )
    finally:
        process.kill()
        process.wait()
        release_process(process)
    if process.returncode != 0:
        raise EmbeddedError(f"downloading {group}", _read_warnings(log), _NETWORK)


def _read_warnings(log: Path) -> str:
    """Return Ivy's first warnings, which name the artifact and the reason; the rest is repetition."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    warnings = [
        line for line in lines if line.startswith(("WARN", "ERROR", "::")) and any(map(str.isalpha, line))
    ]
    return "Ivy failed:\n    " + "\n    ".join(warnings[:8] or lines[-8:])


def verify_pinned_files(group: str, folder: Path) -> None:
    """Raise EmbeddedError unless every pinned file exists and has its checksum; remove unknown files
    unused.
    """
    pinned = load_pinned_files(group)
    for path in folder.iterdir():
        if path.name not in pinned:
            path.unlink()
    for each in pinned.values():
        _verify_file(group, folder / each.name, each)


def _verify_file(group: str, path: Path, pinned: PinnedFile) -> None:
    if not path.exists():
        raise EmbeddedError(f"downloading {group}", f"{pinned.name} did not arrive", _NETWORK)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != pinned.sha256:
        raise EmbeddedError(
            f"the repository that sent {pinned.name}",
            f"its sha256 is {digest}, pinned is {pinned.sha256}",
            "do not use it; ask the operator of your mirror, or update "
            "deploy/fetch/checksums.json after a review",
        )
