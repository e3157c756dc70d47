"""A statement of the log is split into tokens once, on its way from the event to what becomes of its
tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from producer.binlog_format.log_event import LoggedStatement
from producer.definitions.index import StatementIndex, yield_touched_tables
from producer.definitions.logged_statements import ImpactAnalyzer
from producer.sources.binlog.assembly import RereadRequest, TransactionBuffer
from producer.sources.binlog.transactions import TransactionAssembler
from producer.sources.changes import Barrier, Boundary
from producer.statements import tokens
from tests.kits.barriers import Stage, source
from tests.kits.log import Log


class CountedPattern:
    """The pattern of a token, which counts how often each text is read to its end."""

    def __init__(self, pattern: re.Pattern[str], counts: Counter[str]) -> None:
        self._pattern, self._counts = pattern, counts

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        for match in self._pattern.finditer(text):
            self._counts[text] += match.end() == len(text)
            yield match


@pytest.fixture(name="counts")
def _counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts = Counter[str]()
    for name in ("_TOKEN", "_TOKEN_NO_ESCAPES"):
        monkeypatch.setattr(tokens, name, CountedPattern(getattr(tokens, name), counts))
    return counts


class Capture:
    """Capture of `bank.t` and `bank.u`, from the events of a log on."""

    def __init__(self) -> None:
        self.log = Log()
        self.buffer = TransactionBuffer(lambda *_: True)
        self.assembler = TransactionAssembler(lambda *_: True)
        self.stage = Stage(tools=True)
        definitions: Any = SimpleNamespace(
            scan=SimpleNamespace(index=StatementIndex()), read_catalog=lambda *_: (source(), (9, 9))
        )
        analyzer = ImpactAnalyzer(definitions, lambda: definitions, lambda: (0, 0))
        self.stage.find_impact = analyzer.find_impact  # type: ignore[method-assign]

    def carry_out(self, sql: str) -> bool:
        """Carry out a transaction of one statement; return whether it was a barrier."""
        self.log.events.clear()
        self.log.gtid()
        self.log.query(sql)
        found = []
        for event in self.log.events:
            passed = self.buffer.accept_event(event)
            assert not isinstance(passed, RereadRequest)
            found += [self.assembler.fold_event(each) for each in passed]
        barriers = [each for each in found if isinstance(each, Barrier)]
        for barrier in barriers:
            self.stage.handle(barrier)
            found.append(self.assembler.finish_barrier(self.log.events[-1]))
        assert isinstance(found[-1], Boundary)
        return bool(barriers)


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE t ADD COLUMN x INT, ADD INDEX (x)"],
        ["ALTER TABLE t MODIFY note VARCHAR(20), ALGORITHM=COPY"],
        ["ALTER TABLE t ADD INDEX (id)", "ALTER TABLE t REBUILD PARTITION p0"],
        ["ALTER IGNORE TABLE t ADD UNIQUE (id)"],
        ["CREATE INDEX i ON t (id)", "DROP INDEX i ON t", "OPTIMIZE TABLE t"],
        ["CREATE TABLE n (id INT)", "CREATE TABLE m AS SELECT * FROM n", "RENAME TABLE m TO o", "DROP TABLE o"],  # noqa: E501
        ["TRUNCATE TABLE t", "DROP DATABASE bank"],
        ["INSERT INTO log VALUES (1, 'a')", "UPDATE t SET note = 'b'"],
        ["CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW SET @a = 1"],
        ["SOMETHING NEW"],
        [
            "CREATE TABLE `bank`.`_t_gho` LIKE `bank`.`t`", "ALTER TABLE `bank`.`_t_gho` ADD INDEX (id)",
            "ALTER TABLE t COMMENT = 'x'",
            "RENAME TABLE `bank`.`t` TO `bank`.`_t_del`, `bank`.`_t_gho` TO `bank`.`t`",
        ],
    ],
    ids=lambda statements: statements[0][:20],
)  # fmt: skip
def test_a_statement_is_tokenized_once_from_its_event_to_its_effects(
    statements: list[str], counts: Counter[str]
) -> None:
    capture = Capture()
    for sql in statements:
        assert capture.carry_out(sql)
        assert counts[sql] == 1, sql


def test_an_indexed_statement_is_tokenized_once(counts: Counter[str]) -> None:
    sql = "ALTER TABLE t ADD COLUMN x INT"
    assert list(yield_touched_tables(LoggedStatement("bank", sql)))
    assert counts == {sql: 1}
