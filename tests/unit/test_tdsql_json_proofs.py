"""Definitions for TDSQL's JSON subscription: one that was read from the catalogue counts for the messages
before it only after a later message of the same set."""

from __future__ import annotations

import random
from typing import NamedTuple

from producer.sources.tdsql_json.definition_proofs import DefinitionProofs, JudgedDefinition

ACCT, OTHER = ("bank", "acct"), ("bank", "other")
DIFFERENCE_S = 3.0


def test_a_message_that_began_after_the_reading_proves_a_definition() -> None:
    proofs = DefinitionProofs(DIFFERENCE_S)
    proofs.add_definition(ACCT, 100.5)
    assert proofs.judge_event(103) == []
    assert proofs.judge_event(104) == [JudgedDefinition(ACCT, is_proven=True)]
    assert proofs.judge_event(105) == []


def test_a_statement_before_the_proof_refutes_the_definitions_that_it_may_concern() -> None:
    for changed, left in (([ACCT], [OTHER]), (None, []), ([], [ACCT, OTHER])):
        proofs = DefinitionProofs(DIFFERENCE_S)
        proofs.add_definition(ACCT, 100)
        proofs.add_definition(OTHER, 100)
        refuted = [each.table for each in proofs.judge_event(99, changed)]
        assert refuted == [table for table in (ACCT, OTHER) if table not in left]
        assert proofs.judge_event(104) == [JudgedDefinition(table, is_proven=True) for table in left]


def test_a_statement_after_the_reading_is_itself_a_proof() -> None:
    proofs = DefinitionProofs(DIFFERENCE_S)
    proofs.add_definition(ACCT, 100)
    assert proofs.judge_event(104, [ACCT]) == [JudgedDefinition(ACCT, is_proven=True)]


class Logged(NamedTuple):
    """A transaction of a log. `version`: of the table's definition, which a statement raises."""

    begun_s: float
    committed_s: float
    is_statement: bool
    version: int


def draw_log(drawn: random.Random) -> list[Logged]:
    log, now, version = [], 1000.0, 1
    for _ in range(drawn.randint(5, 40)):
        now += drawn.random() * 4
        is_statement = drawn.random() < 0.15
        version += is_statement
        log.append(Logged(now - drawn.random() * 6, now, is_statement, version))
    return log


def decode_wrongly(seed: int, *, is_end_a_proof: bool) -> bool:
    """Return whether a row is decoded by another definition than its own.

    The reader meets the table at some message, reads the catalogue at any time after that was logged, by a
    clock of its own, and goes on. `is_end_a_proof`: what is in the topic without a statement counts as proof.
    """
    drawn = random.Random(seed)
    log = draw_log(drawn)
    first = drawn.randrange(len(log))
    read_s = log[first].committed_s + drawn.random() * 30
    version = max((each.version for each in log if each.committed_s <= read_s), default=1)
    proofs = DefinitionProofs(DIFFERENCE_S)
    proofs.add_definition(ACCT, read_s + drawn.uniform(-DIFFERENCE_S, DIFFERENCE_S))
    end = drawn.randint(first, len(log)) if is_end_a_proof else None  # as far as the topic is written
    waiting: list[Logged] = []
    for place, each in enumerate(log[first:], first):
        judged = proofs.judge_event(int(each.begun_s), [ACCT] if each.is_statement else [])
        if judged and not judged[0].is_proven:
            return False
        if judged or place == end:
            return any(row.version != version for row in waiting)
        if not each.is_statement:
            waiting.append(each)
    return False


def test_no_row_is_decoded_by_another_definition_than_its_own() -> None:
    assert [seed for seed in range(3000) if decode_wrongly(seed, is_end_a_proof=False)] == []


def test_the_end_of_the_topic_is_no_proof() -> None:
    assert any(decode_wrongly(seed, is_end_a_proof=True) for seed in range(300))
