"""Accounts in a Kafka target, and `rowlock verify` of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from consumer.ordering.model import TargetTable, TopicOptions
from consumer.tables.router import ResolvedRoute
from rowlock.inspect.pairs import TablePair
from rowlock.inspect.verify import PairResult, VerifyLimits, compare_topic
from rowlock.views.target import RowsView
from schemas.config.model import KafkaTargetConfig
from schemas.table.model import Key, Row
from tests.kits.apply import account_table


class Accounts:
    """A source's table, id → row."""

    def __init__(self, *rows: Row) -> None:
        self.rows = {row[0]: row for row in rows}

    def fetch_rows(self, of: TargetTable, after: Key | None, limit: int, where: Any = None) -> list[Row]:
        keys = sorted(key for key in self.rows if after is None or key > after[0])  # type: ignore[operator]
        return [self.rows[key] for key in keys[:limit]]

    def fetch_keys(self, of: TargetTable, keys: Sequence[Key]) -> list[Row]:
        return [self.rows[key[0]] for key in keys if key[0] in self.rows]


def verify(source: Accounts, config: KafkaTargetConfig, settle_s: float = 0.0, **options: Any) -> PairResult:
    routed = ResolvedRoute(config.prefix, "acct", topic=TopicOptions(kinds=(("b1", "mariadb"),), **options))
    pair = TablePair("out", "b1", account_table(), "feed", routed)
    return compare_topic(pair, cast(RowsView, source), config, VerifyLimits(settle_s, page=3))
