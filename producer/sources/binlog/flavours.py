"""The makes of servers with a MySQL binlog that can be captured, by their `type` in the configuration."""

from __future__ import annotations

from producer.sources.binlog.flavour import BinlogFlavour
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from schemas.config.model import SourceConfig

BINLOG_FLAVOURS = {flavour.type: flavour for flavour in (MYSQL_FLAVOUR, MARIADB_FLAVOUR)}


def get_flavour(source: SourceConfig) -> BinlogFlavour:
    """Return the make of a source."""
    return BINLOG_FLAVOURS[source.type]
