"""Tables with UUIDs as MariaDB 10.11.4 and earlier made them: with the groups of every UUID reversed."""

from __future__ import annotations

from pathlib import Path

from deploy.embedded.services import MariaDB

_VERSION_AT = 0x33


def give_former_version(mariadb: MariaDB, database: str, table: str) -> None:
    """Make an empty table one of MariaDB 10.11.4: the server decides by the version in its definition."""
    mariadb.execute("FLUSH TABLES")
    [(folder,)] = mariadb.execute("SELECT @@datadir")
    file = Path(folder) / database / f"{table}.frm"
    raw = bytearray(file.read_bytes())
    raw[_VERSION_AT : _VERSION_AT + 4] = (101104).to_bytes(4, "little")
    file.write_bytes(raw)
    mariadb.execute("FLUSH TABLES")
    [(_, _, kind, text)] = mariadb.execute(f"CHECK TABLE {table} FOR UPGRADE", database=database)
    assert kind == "error", text
