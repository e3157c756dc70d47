"""The kinds of sources: the one table that a new kind is entered in (docs/how-to/add-a-source.md).

The configuration takes these words as `type` of a source; capture finds the modules by them. Data only: nothing is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceKind:
    """`attribute` of `module` makes a `producer.source.SourceDatabase` of the configuration and the source's name in it.

    `selected`: attribute that reads the definitions of the selected tables, for the command line; "": it reads them, and more, as those of
    MySQL.
    """

    module: str
    attribute: str
    selected: str = ""


_BINLOG = SourceKind("producer.flavours.binlog_source", "binlog_source")

SOURCE_KINDS = {
    "mysql": _BINLOG,
    "mariadb": _BINLOG,
    "oracle": SourceKind("producer.oracle.source", "oracle_source", "selected_tables"),
}
