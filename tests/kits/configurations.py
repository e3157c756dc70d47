"""A configuration without mistakes, and what a test loads from a text."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.config.model import Config, ConfigErrors, load_config

GOOD = """\
kafka:
  bootstrap: 127.0.0.1:9092
sources:
  branch1:
    type: mariadb
    host: 127.0.0.1
    user: rowlock
    password: "${SECRET}"
    tables: [bank.*, "!bank.tmp_*"]
targets:
  hq:
    type: postgres
    host: 127.0.0.1
    port: 5432
    user: rowlock
    password: geheim
    database: hq
pipelines:
  to-hq:
    sources: [branch1]
    target: hq
    routes:
      - from: bank.*
        to: public.{table}
        add: {branch: "{source}"}
"""


def load(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    return load_config(file, {})


def problems(tmp_path: Path, text: str) -> list[str]:
    """Return "line: problem" for each problem of a configuration that is refused."""
    with pytest.raises(ConfigErrors) as caught:
        load(tmp_path, text)
    return [line.partition("c.yaml:")[2] for line in caught.value.lines]
