"""The kinds of sources: the table in which a new kind is registered (docs/how-to/add-a-source.md).

The configuration accepts these words as `type` of a source, and capture finds the modules by them. Data
only: nothing is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceKind:
    """A kind of source.

    `attribute` of `module` makes a `producer.sources.protocols.SourceDatabase` from the configuration and the
    source's name in it.
    """

    module: str
    attribute: str
    view: str = ""
    """"module:attribute" of the function that makes the `producer.sources.source_view.SourceView` from a
    source's section and its name, for the command line; "": that of MySQL.
    """
    port: int = 0
    """The port that its servers usually listen on, the default of the section's `port`; 0: there is none."""
    new_user: tuple[str, ...] = ()
    """Templates of the statements that create rowlock's user (rowlock/inspect/first_config/new_user.py)."""
    quote: str = '"'
    """The quotation mark of names in `new_user`."""
    fails_over: bool = False
    """Whether a section may have `hosts`: capture can continue at another server."""
    leaves_columns_out: bool = False
    """Whether a section may have `columns`."""


def _describe_binlog_kind(*rights: str) -> SourceKind:
    """Return a kind of server with MySQL's protocol; `rights`: those to read its log."""
    return SourceKind(
        "producer.sources.binlog.binlog_source",
        "make_binlog_source",
        port=3306,
        new_user=(
            "CREATE USER {account} IDENTIFIED BY '{password}';",
            f"GRANT {', '.join(rights)} ON *.* TO {{account}};",
            "GRANT SELECT ON {tables} TO {account};",
        ),
        quote="`",
        fails_over=True,
        leaves_columns_out=True,
    )


SOURCE_KINDS = {
    "mysql": _describe_binlog_kind("REPLICATION SLAVE", "REPLICATION CLIENT"),
    "mariadb": _describe_binlog_kind("REPLICATION SLAVE", "BINLOG MONITOR", "SLAVE MONITOR"),
    "oracle": SourceKind(
        "producer.sources.oracle.source",
        "make_oracle_source",
        "producer.sources.oracle.view:make_oracle_view",
        port=1521,
        new_user=(
            'CREATE USER {USER} IDENTIFIED BY "{password}";',
            "GRANT CREATE SESSION TO {USER};",
        ),
    ),
}
