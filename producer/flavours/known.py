"""The makes of servers with a MySQL binlog that can be captured, by their `type` in the configuration."""

from __future__ import annotations

from producer.flavours.flavour import BinlogFlavour
from producer.flavours.mariadb import MARIADB
from producer.flavours.mysql import MYSQL
from schemas.config.model import SourceConfig

FLAVOURS = {flavour.type: flavour for flavour in (MYSQL, MARIADB)}


def flavour_of(source: SourceConfig) -> BinlogFlavour:
    """Return the make of a source."""
    return FLAVOURS[source.type]
