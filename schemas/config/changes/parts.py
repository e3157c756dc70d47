"""The parts of a configuration that units run under, and digests that tell whether two processes have the same. Pure.

A part is `source/NAME` (a capture unit's) or `pipeline/NAME` (its apply units': with the target, and with those of its sources that
Debezium writes, which apply reads itself). Digests leave out secrets and paths, which are a machine's own.
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


def source_part(source: str) -> str:
    return f"source/{source}"


def pipeline_part(pipeline: str) -> str:
    return f"pipeline/{pipeline}"


def parts(config: Config) -> dict[str, tuple[BaseModel, ...]]:
    """Return part → the sections of the configuration that are in it."""
    found: dict[str, tuple[BaseModel, ...]] = {
        source_part(name): (source, *_repairs(config, name))
        for name, source in config.sources.items()
        if source.events == "rowlock"
    }
    for name, pipeline in config.pipelines.items():
        read = [config.sources[source] for source in pipeline.sources]
        theirs = [source for source in read if source.events == "debezium"]
        found[pipeline_part(name)] = (pipeline, config.targets[pipeline.target], *theirs)
    return found


def _repairs(config: Config, source: str) -> tuple[BaseModel, ...]:
    """`repair` of the pipelines that a source goes to, where it is not the default: capture copies by it what was dropped and is there again."""
    repairs = [each.repair for _, each in sorted(config.pipelines.items()) if source in each.sources]
    return tuple(each for each in repairs if each != RepairConfig())


def part_digests(config: Config) -> dict[str, str]:
    """Return part → its digest."""
    return {
        part: _digest([_plain(section) for section in sections]) for part, sections in parts(config).items()
    }


def digest(config: Config) -> str:
    """Return what tells one configuration from another: all of its parts, and the topics' prefix."""
    return _digest([config.kafka.prefix, part_digests(config)])


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()[:_DIGITS]


def _plain(value: Any) -> Any:
    """Return a value of a model as JSON has it, without secrets and paths."""
    if isinstance(value, BaseModel):
        return {name: _plain(each) for name, each in value if not isinstance(each, SecretStr | Path)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
