"""What is left of a text for the lock of a unique value (consumer.ordering.collations): never less alike than
the server finds texts."""

from __future__ import annotations

import pytest

from consumer.ordering.collations import make_text_fold


@pytest.mark.parametrize(
    ("collation", "one", "other"),
    [
        # unicode_ci and general_ci know no character beyond the first plane: all of them are one to the
        # server
        ("utf8mb4_unicode_ci", "\U00010000", "\U0001f600"),
        ("utf8mb4_general_ci", "\U00010000", "\U0001f600"),
        # Hungarian has letters of two and three characters, whose first is written twice for a long one: ccs
        # is cs, twice
        ("utf8mb4_hungarian_ci", "eccs", "ecs"),
        ("utf8mb4_hungarian_ci", "hossz", "hosz"),
        # ß is ss, and s to general_ci
        ("utf8mb4_general_ci", "Straße", "STRASE"),
        ("utf8mb4_0900_ai_ci", "Straße", "STRASSE"),
        ("utf8mb4_0900_ai_ci", "\U0001d400", "a"),
        ("utf8mb4_0900_ai_ci", "\u096b", "5"),  # a five of another script
    ],
)
def test_texts_that_a_server_finds_equal_have_one_lock(collation: str, one: str, other: str) -> None:
    fold = make_text_fold(collation, None)
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    ("collation", "one", "other"),
    [
        ("utf8mb4_unicode_ci", "aa", "a"),
        ("utf8mb4_unicode_ci", "\uff21", "\U00010000"),
        ("utf8mb4_hungarian_ci", "ab", "a"),
        ("utf8mb4_0900_ai_ci", "\U0001d400", "\U0001d401"),
    ],
)
def test_other_texts_have_locks_of_their_own(collation: str, one: str, other: str) -> None:
    """Nothing would be wrong without: lanes would wait for each other more than they must."""
    fold = make_text_fold(collation, None)
    assert fold(one) != fold(other)
