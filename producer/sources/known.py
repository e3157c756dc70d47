"""The kinds of sources, found by their entries in schemas/config/kinds/sources.py."""

from __future__ import annotations

from importlib import import_module

from producer.sources.protocols import SourceDatabase
from schemas.config.kinds.sources import SOURCE_KINDS
from schemas.config.model import Config


def load_source_database(config: Config, name: str) -> SourceDatabase:
    """Return the source `name` of the configuration; it connects when it is used."""
    kind = SOURCE_KINDS[config.sources[name].type]
    source: SourceDatabase = getattr(import_module(kind.module), kind.attribute)(config, name)
    return source
