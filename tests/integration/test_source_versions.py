"""The suite of every source, on each version of MySQL and MariaDB that README names beside the newest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.mariadb import MySQLFamily
from deploy.embedded.services import Kafka
from tests.conformance import sources
from tests.conformance.suite import suite
from tests.kits.sources import ServerSite, SourceSite
from tests.servers.versions import VERSIONS

pytestmark = pytest.mark.parametrize("version", VERSIONS, indirect=True)
globals().update(suite(sources))


@pytest.fixture
def site(version: MySQLFamily, kafka: Kafka, unique: str, tmp_path: Path) -> Iterator[SourceSite]:
    version.create_database(unique)
    yield ServerSite(kafka, version, unique, tmp_path)
    version.drop_database(unique)
