"""The parts of a configuration that units run under, and digests by which two processes compare them.
Pure.

A part is `source/NAME` (of a capture unit) or `pipeline/NAME` (of its apply units: with the target, and
with those of its sources that Debezium writes, which apply reads itself). Digests leave out secrets and
paths, which differ between machines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from schemas.config.model import Config, RepairConfig

_DIGITS = 12


def format_source_part(source: str) -> str:
    return f"source/{source}"


def format_pipeline_part(pipeline: str) -> str:
    return f"pipeline/{pipeline}"


def format_table_part(pipeline: str, source: str, table: str) -> str:
    """Return the name of one table of a pipeline's part. `table`: "db.table", see format_table_text."""
    return f"{format_pipeline_part(pipeline)}/{source}/{table}"


def collect_config_parts(config: Config) -> dict[str, tuple[BaseModel, ...]]:
    """Return part → the sections of the configuration that belong to it."""
    found: dict[str, tuple[BaseModel, ...]] = {
        format_source_part(name): (source, *_collect_repairs(config, name))
        for name, source in config.sources.items()
        if source.events == "rowlock"
    }
    for name, pipeline in config.pipelines.items():
        read = [config.sources[source] for source in pipeline.sources]
        theirs = [source for source in read if source.events == "debezium"]
        found[format_pipeline_part(name)] = (pipeline, config.targets[pipeline.target], *theirs)
    return found


def _collect_repairs(config: Config, source: str) -> tuple[BaseModel, ...]:
    """Return `repair` of a source's pipelines where it is not the default.

    Capture uses it to copy tables that were dropped and exist again.
    """
    repairs = [each.repair for _, each in sorted(config.pipelines.items()) if source in each.sources]
    return tuple(each for each in repairs if each != RepairConfig())


def compute_part_digests(config: Config) -> dict[str, str]:
    """Return part → its digest."""
    return {
        part: _compute_digest([_convert_to_plain(section) for section in sections])
        for part, sections in collect_config_parts(config).items()
    }


def compute_config_digest(config: Config) -> str:
    """Return a digest of the configuration: of all its parts and the topics' prefix."""
    return _compute_digest([config.kafka.prefix, compute_part_digests(config)])


def _compute_digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()[:_DIGITS]


#: Keys that 0.2.0 does not know. Unused, they are in no digest, so that agents of both versions have one.
_NEWER_KEYS = frozenset({"rename", "partitions", "history", "hosts", "columns"})


def _is_unused_newer_key(model: BaseModel, name: str) -> bool:
    return name in _NEWER_KEYS and name not in model.model_fields_set


def _convert_to_plain(value: Any) -> Any:
    """Return a value of a model in the form of JSON, without secrets and paths."""
    if isinstance(value, BaseModel):
        return {
            name: _convert_to_plain(each)
            for name, each in value
            if not isinstance(each, SecretStr | Path) and not _is_unused_newer_key(value, name)
        }
    if isinstance(value, Mapping):
        return {str(key): _convert_to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_convert_to_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
