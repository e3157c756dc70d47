"""A pipeline of Debezium's topics, and units that enter it."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.config.model import Config, load_config
from tests.stands.fake_target import FakeTarget

TOPIC = "rowlock.b1.bank.acct"


CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources:
  b1: {type: mariadb, events: debezium, decimals: string, host: h, port: 1, user: u, password: p, tables: [bank.*]}
targets:
  hq: {type: postgres, host: 127.0.0.1, port: 1, user: u, password: p, database: d}
pipelines:
  p: {sources: [b1], target: hq, lanes: 2, routes: [{from: bank.*, to: "public.{table}"}]}
"""  # noqa: E501


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    return load_config(file)


class Entered:
    def __init__(self, target: FakeTarget) -> None:
        self._target = target

    def __enter__(self) -> FakeTarget:
        return self._target

    def __exit__(self, *_: object) -> None: ...
