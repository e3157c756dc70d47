"""The kinds of sources, found by their entries in schemas/config/source_kinds.py."""

from __future__ import annotations

from importlib import import_module

from producer.source import SourceDatabase
from schemas.config.model import Config
from schemas.config.source_kinds import SOURCE_KINDS


def source_of(config: Config, name: str) -> SourceDatabase:
    """Return the source `name` of the configuration; it connects when it is asked."""
    kind = SOURCE_KINDS[config.sources[name].type]
    source: SourceDatabase = getattr(import_module(kind.module), kind.attribute)(config, name)
    return source
