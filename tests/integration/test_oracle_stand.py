"""Capture of Oracle on its stand (a), a PostgreSQL with triggers: the tests of every source, and what only a log that is used up can lose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.embedded.services import PostgreSQL
from tests.integration import test_sources
from tests.oracle_site import OracleSite
from tests.oracle_stand import OracleStand

#: An Oracle tells a TRUNCATE from nothing else that replaces rows: it ends in a copy (below).
ALL = {name: each for name, each in vars(test_sources).items() if name.startswith("test_")}
del ALL["test_an_emptied_table_is_empty"]
globals().update(ALL)


@pytest.fixture
def stand(postgres: PostgreSQL, unique: str) -> Iterator[OracleStand]:
    postgres.create_database(unique)
    stand = OracleStand(lambda **options: postgres.connect(unique, **options))
    yield stand
    stand.close()
    postgres.drop_database(unique)


@pytest.fixture
def site(stand: OracleStand) -> OracleSite:
    return OracleSite(stand)
