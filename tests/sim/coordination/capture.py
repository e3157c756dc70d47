"""A captured source's topic as a model: claims of the gen, events, and a reader that judges them.

What differs from an apply unit: Kafka locks nothing and refuses no writer. A capture worker claims a gen in
the position topic, writes its tables' definition under it, reads the topic up to there, and goes on from what
precedes it. Readers drop each event of a lower gen after that definition, so a paused worker that goes on
writes in vain.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class CaptureRules:
    """`refuse_late`: a start of an earlier assignment than the latest that has claimed is refused. Off is a
    mutation: it takes the next gen."""

    refuse_late: bool = True


@dataclass(slots=True)
class CaptureTopic:
    """`claimed`: highest gen in the position topic; `latest`: of the assignments that have claimed. `seen`,
    `accepted`: the reader's highest gen, and how far it got.

    `writes`: every (gen, end) that the reader took, in order.
    """

    rules: CaptureRules = field(default_factory=CaptureRules)
    claimed: int = 0
    latest: int = 0
    seen: int = 0
    accepted: int = 0
    dropped: int = 0
    refused: int = 0
    writes: list[tuple[int, int]] = field(default_factory=list)

    def claim(self, assignment: int) -> int | None:
        """Store a gen for the assignment `epoch`; None: refused, a later one has claimed."""
        if self.latest > assignment and self.rules.refuse_late:
            self.refused += 1
            return None
        self.latest = max(self.latest, assignment)
        self.claimed = max(self.claimed + 1, assignment)
        return self.claimed

    def define(self, gen: int) -> int:
        """The definition under `gen` arrives; returns up to where the topic goes before it."""
        self.seen = max(self.seen, gen)
        return self.accepted

    def append(self, assignment: int, gen: int, start: int, end: int) -> None:
        """Events (start, end] of `assignment` arrive. Raises AssertionError where a reader would find that
        some are missing, or drop those of the latest assignment: its worker would write for ever, and no
        reader would take its events."""
        if gen < self.seen:
            self.dropped += 1
            if assignment == self.latest:
                raise AssertionError(
                    f"readers drop gen {gen} of the latest assignment: {self.seen} was claimed"
                )
            return
        self.seen = gen
        if end <= self.accepted:
            return
        if start > self.accepted:
            raise AssertionError(f"gap: gen {gen} goes on at {start}, the topic ends at {self.accepted}")
        self.accepted = end
        self.writes.append((gen, end))
