"""The oldest version of each server that rowlock supports, and the message that refuses an older one.
Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from schemas.problems import Problem


class OldestVersion(NamedTuple):
    """The oldest supported version of a product."""

    product: str
    numbers: tuple[int, ...]
    reason: str
    """What earlier versions lack, as a clause."""

    @property
    def text(self) -> str:
        return f"{self.product} {'.'.join(map(str, self.numbers))}"


OLDEST_MYSQL = OldestVersion(
    "MySQL", (8, 0, 13), "the catalog of earlier versions does not show expressions of unique indexes"
)
OLDEST_MARIADB = OldestVersion(
    "MariaDB", (10, 10), "the catalog of earlier versions does not show full names of collations"
)
OLDEST_POSTGRES = OldestVersion(
    "PostgreSQL",
    (12,),
    "the catalog of earlier versions does not show which collations are deterministic",
)

#: MariaDB before 11 shows this before its version when a client connects, for replicas of old MySQLs.
_DISGUISE = "5.5.5-"


def explain_mysql_version_refusal(version: str) -> Problem | None:
    """Return why a server of MySQL's protocol is refused, by its VERSION() or handshake (see
    explain_version_refusal).
    """
    shown = version.removeprefix(_DISGUISE)
    return explain_version_refusal(shown, OLDEST_MARIADB if "mariadb" in shown.lower() else OLDEST_MYSQL)


def explain_version_refusal(version: str, oldest: OldestVersion) -> Problem | None:
    """Return why a server of this version is refused ("is …, reason").

    None if it is supported, or if the text contains no version.
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", version.partition("-")[0])[:3])
    if numbers >= oldest.numbers[: len(numbers)]:
        return None
    return Problem(
        f"is {oldest.product} {version}, which is too old: rowlock needs {oldest.text} or later, because {oldest.reason}",
        f"upgrade it, or use a server of {oldest.text} or later (a replica of this one that logs what it replicates can be the source)",
    )
