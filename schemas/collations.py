"""Collations of MySQL that MariaDB lacks, and the other way round, as data.

A replacement must never hold two values equal that the source holds different: the target's unique index would then
refuse rows. So each list goes from the nearest collation to surely finer ones, and ends at a binary one. (PAD SPACE
may become NO PAD: that is finer. `general` collations have no entry: they hold ß = s, Unicode's hold ß = ss.)
Between versions of Unicode's tables single characters may still differ; `check` compares nothing of that kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from schemas.table import ColumnType

#: Collation → replacements, best first. `{}_bin` of the character set is the last resort of every collation.
REPLACEMENTS: dict[str, tuple[str, ...]] = {
    "utf8mb4_0900_ai_ci": ("utf8mb4_uca1400_nopad_ai_ci",),
    "utf8mb4_0900_as_ci": ("utf8mb4_uca1400_nopad_as_ci",),
    "utf8mb4_0900_as_cs": ("utf8mb4_uca1400_nopad_as_cs",),
    "utf8mb4_0900_bin": ("utf8mb4_nopad_bin",),
    "utf8mb4_uca1400_ai_ci": ("utf8mb4_0900_ai_ci",),
    "utf8mb4_uca1400_as_ci": ("utf8mb4_0900_as_ci",),
    "utf8mb4_uca1400_as_cs": ("utf8mb4_0900_as_cs",),
    "utf8mb4_uca1400_nopad_ai_ci": ("utf8mb4_0900_ai_ci",),
    "utf8mb4_uca1400_nopad_as_ci": ("utf8mb4_0900_as_ci",),
    "utf8mb4_uca1400_nopad_as_cs": ("utf8mb4_0900_as_cs",),
    "utf8mb4_nopad_bin": ("utf8mb4_0900_bin",),
    "utf8mb4_unicode_nopad_ci": ("utf8mb4_0900_ai_ci",),
    "utf8mb4_unicode_520_nopad_ci": ("utf8mb4_0900_ai_ci",),
}
#: Last resorts: compared by code point (NO PAD first: PAD SPACE would be coarser for a NO PAD collation).
BINARY: tuple[str, ...] = ("{charset}_0900_bin", "{charset}_nopad_bin", "{charset}_bin")


def chooser(available: Collection[str]) -> Callable[[ColumnType], str | None]:
    """Return a function that gives the collation for a column on a server that has the collations `available`.

    It gives None for types without text, and where the server lacks the character set: its default then serves.
    """
    known = frozenset(available)

    def choose(type_: ColumnType) -> str | None:
        if type_.collation is None:
            return None
        return next((name for name in _candidates(type_.collation) if name in known), None)

    return choose


def _candidates(collation: str) -> tuple[str, ...]:
    charset = collation.partition("_")[0]
    binary = tuple(name.format(charset=charset) for name in BINARY)
    return (collation, *REPLACEMENTS.get(collation, ()), *binary)
