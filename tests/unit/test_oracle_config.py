"""A source of type oracle in the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.config.model import ConfigErrors, load_config

GOOD = "type: oracle, host: h, port: 1521, database: PDB1, user: u, password: p, tables: [BANK.*]"


def load(folder: Path, source: str) -> str:
    """Return what is wrong."""
    path = folder / "c.yaml"
    path.write_text(f"kafka: {{bootstrap: '127.0.0.1:9092'}}\nsources:\n  core: {{{source}}}\n")
    try:
        load_config(path, {})
    except ConfigErrors as errors:
        return str(errors)
    return ""


@pytest.mark.parametrize(("change", "output"), [
    (("", ""), ""),
    (("database: PDB1, ", ""), "needs the service"),
    (("type: oracle", "events: debezium, type: oracle"), "Debezium's events of Oracle"),
    (("type: oracle", "online_ddl: [], type: oracle"), "about a binlog"),
    (("type: oracle", "type: mysql"), "has no service"),
])  # fmt: skip
def test_what_only_one_kind_has_is_refused_for_the_other(
    tmp_path: Path, change: tuple[str, str], output: str
) -> None:
    found = load(tmp_path, GOOD.replace(*change) if change[0] else GOOD)
    assert found == "" if not output else output in found
