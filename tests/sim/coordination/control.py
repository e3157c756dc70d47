"""The control topic as a model: one partition, claims with fencing of older producers, records folded per owner."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.core.owner_state import Record


@dataclass(slots=True)
class ControlTopic:
    """`claims`: every owner_rev in order, with its owner. `fencing` off is a mutation: older producers still write."""

    fencing: bool = True
    offset: int = 0
    claims: list[tuple[int, str]] = field(default_factory=list)
    records: dict[str, Record] = field(default_factory=dict)
    last_beat: float = float("-inf")

    def claim(self, owner: str, now: float) -> int:
        self.offset += 1
        self.claims.append((self.offset, owner))
        self.last_beat = now
        return self.offset

    def commit(self, rev: int, records: tuple[tuple[str, Record | None], ...], now: float) -> bool:
        """Append one transaction of the producer that claimed `rev`; False: it is fenced."""
        if self.fencing and (not self.claims or self.claims[-1][0] != rev):
            return False
        self.offset += 1
        self.last_beat = now
        for key, record in records:
            if record is None:
                self.records.pop(key, None)
            else:
                self.records[key] = record
        return True
