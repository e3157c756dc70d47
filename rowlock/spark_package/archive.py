"""Writes the archive: the same files always give the same bytes."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from rowlock.errors import CommandError
from rowlock.spark_package.contents import MANIFEST_NAME, Manifest

MODIFIED_S = 315532800
"""The time of every file in the archive: 1980, the first that all archive formats can express."""
COMPRESSION_LEVEL = 6
SUFFIXES = (".tar.gz", ".tgz")
"""The names by which Spark recognises an archive that it has to unpack."""


def require_archive_name(output: Path) -> None:
    """Raise CommandError unless Spark would unpack a file of this name."""
    if not output.name.endswith(SUFFIXES):
        raise CommandError(
            f"{output}: Spark unpacks an archive only if its name ends with {' or '.join(SUFFIXES)}",
            "give such a name with --output",
        )


def write_archive(output: Path, files: Mapping[str, Path], manifest: Manifest) -> None:
    """Write the archive whole or not at all. `files`: name in the archive → file. Raises CommandError."""
    new = output.with_name(f".{output.name}.{os.getpid()}.new")
    added = {MANIFEST_NAME: manifest.encode(), **_build_metadata(manifest.rowlock)}
    try:
        with new.open("xb") as opened:
            _write_members(opened, files, added)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(output)
    except OSError as error:
        remedy = "name another file with --output, in a folder with room where you may write"
        raise CommandError(f"{output} cannot be written: {error.strerror}", remedy) from error
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _write_members(opened: IO[bytes], files: Mapping[str, Path], added: Mapping[str, bytes]) -> None:
    packed = gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION_LEVEL, fileobj=opened, mtime=0)
    with packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted({*files, *added}):
            if name in added:
                archive.addfile(_build_member(name, len(added[name])), io.BytesIO(added[name]))
            else:
                _write_file(archive, name, files[name])


def _write_file(archive: tarfile.TarFile, name: str, file: Path) -> None:
    try:
        source = file.open("rb")
    except OSError as error:
        raise CommandError(
            f"{file} cannot be read: {error.strerror}",
            "run the command as a user who may read the installation",
        ) from error
    with source:
        state = os.fstat(source.fileno())
        is_executable = bool(state.st_mode & 0o100)
        archive.addfile(_build_member(name, state.st_size, is_executable=is_executable), source)


def _build_member(name: str, size: int, *, is_executable: bool = False) -> tarfile.TarInfo:
    """Return a member without what differs between two installations: times, users, umask."""
    member = tarfile.TarInfo(name)
    member.size, member.mtime = size, MODIFIED_S
    member.mode = 0o755 if is_executable else 0o644
    return member


def _build_metadata(version: str) -> dict[str, bytes]:
    """Return the file by which executors know rowlock's version.

    That of an editable installation has the version of the day on which the tree was installed.
    """
    text = f"Metadata-Version: 2.1\nName: rowlock\nVersion: {version}\n"
    return {f"rowlock-{version}.dist-info/METADATA": text.encode()}
