"""What `rowlock check` finds, and how it is shown: place, what was seen, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LEVELS = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Finding:
    """level: error (refused) | warning | info. `remedy` may be empty."""

    level: str
    place: str
    what: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return {"level": self.level, "place": self.place, "what": self.what, "remedy": self.remedy}

    def line(self) -> str:
        """Return the finding as one line."""
        return f"{self.place}: {self.what}" + (f"; {self.remedy}" if self.remedy else "")


def adopt(found: Any, place: str) -> Finding:
    """Return a finding of another package (attributes level, what, remedy; maybe place) as one of ours."""
    where = str(getattr(found, "place", "") or place)
    return Finding(str(found.level), where, str(found.what), str(found.remedy or ""))


def has_errors(findings: Sequence[Finding]) -> bool:
    return any(finding.level == "error" for finding in findings)


def by_weight(findings: Sequence[Finding]) -> list[Finding]:
    """Errors first; otherwise as they were found."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level) if finding.level in LEVELS else 0)
