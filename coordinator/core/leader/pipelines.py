"""The progress of all pipelines: as computed, and as stored. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from coordinator.core.progress import PipelineProgress, PipelineUnits, advance_pipeline
from schemas.units import UnitProgress


@dataclass(slots=True)
class Pipelines:
    """The pipelines of a term. Times are the leader's seconds."""

    progress: dict[str, PipelineProgress] = field(default_factory=dict)
    """As last computed."""
    units: dict[str, PipelineUnits] = field(default_factory=dict)
    """The units from which the progress of each configured pipeline is computed."""
    stored: dict[str, PipelineProgress] = field(default_factory=dict)
    """As stored. Only this is shown, because a later leader begins with it."""
    storing: tuple[int, dict[str, PipelineProgress]] | None = None
    """The token of the Persist under way, and the progress that it stores."""
    next_progress: float = 0.0
    """When the progress is computed next."""
    next_store: float = 0.0
    """When it may be stored next."""

    def restore(self, pipeline: str, progress: PipelineProgress) -> None:
        """Begin with the progress that an earlier leader stored."""
        self.progress[pipeline] = self.stored[pipeline] = progress

    def set_units(self, units: dict[str, PipelineUnits], now: float) -> list[str]:
        """Compute from these units from now on. Returns the pipelines that are no longer configured; they
        are forgotten, so that a later one of the same name starts from the beginning.
        """
        self.units, self.next_progress = units, now
        removed = [pipeline for pipeline in self.progress if pipeline not in units]
        for pipeline in removed:
            del self.progress[pipeline]
            self.stored.pop(pipeline, None)
            if self.storing is not None:
                self.storing[1].pop(pipeline, None)
        return removed

    def advance(self, marks: Mapping[str, UnitProgress | None], due_at: float) -> None:
        """Advance the progress; it is computed again at `due_at`. `marks`: of the units."""
        self.next_progress = due_at
        for pipeline, units in self.units.items():
            before = self.progress.get(pipeline, PipelineProgress())
            self.progress[pipeline] = advance_pipeline(before, units, marks)

    def find_unstored(self, now: float) -> dict[str, PipelineProgress]:
        """Return the progress that is to be stored now: none while a store is under way, or soon after one.

        What a pipeline waits for is not stored: the next leader finds that out itself.
        """
        if self.storing is not None or now < self.next_store:
            return {}
        known = {p: replace(v, waits_for=()) for p, v in self.progress.items()}
        return {p: v for p, v in known.items() if self.stored.get(p, PipelineProgress()) != v}

    def begin_store(self, token: int, progress: dict[str, PipelineProgress], due_at: float) -> None:
        """Note that the Persist of `token` stores this progress; the next one begins at `due_at` at the
        earliest.
        """
        self.storing, self.next_store = (token, progress), due_at

    def confirm_stored(self, token: int) -> None:
        """Note that the progress stored by this Persist is durable, and may be shown."""
        if self.storing is not None and self.storing[0] == token:
            self.stored.update(self.storing[1])
            self.storing = None
