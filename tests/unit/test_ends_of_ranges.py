"""Both ends of ranges that a rule names, one value each: what stands at the end is inside."""

from __future__ import annotations

import pytest

from consumer.ordering.collations import text_fold
from producer.snapshot.chunk_sender import first_row


@pytest.mark.parametrize("collation", ["utf8mb4_0900_ai_ci", "utf8mb4_unicode_ci", "utf8mb4_general_ci"])
def test_every_hiragana_counts_as_its_katakana(collation: str) -> None:
    fold = text_fold(collation, None)
    apart = [chr(point) for point in range(0x3041, 0x3097) if fold(chr(point)) != fold(chr(point + 0x60))]
    assert apart == []


@pytest.mark.parametrize("row", [0, 1, 2**40])
def test_rows_of_the_log_at_a_topics_end_do_not_raise_those_of_a_snapshot(row: int) -> None:
    """The first row of a transaction is row 0."""
    assert first_row(5, (0, 3, 4711, row)) == first_row(5, None) < 0
