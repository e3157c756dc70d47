"""Sorts and prints the findings of commands (schemas/findings.py)."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.findings import Finding


def has_errors(findings: Sequence[Finding]) -> bool:
    return any(finding.level == "error" for finding in findings)


def sort_by_weight(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with errors first, otherwise in their order."""
    return sorted(findings, key=lambda finding: finding.level != "error")


def as_dict(finding: Finding) -> dict[str, str]:
    """Return the documented JSON object."""
    return {"level": finding.level, "place": finding.place, "what": finding.message, "remedy": finding.remedy}
