"""The part of a configuration's text that one pipeline needs, for a process that reads the secrets itself."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
import yaml

from schemas.config.changes.text import ConfigText

LEASE_KEYS = ("lease_s", "interval_s")
"""The keys of `coordination` that are kept: a Kafka target's transactions end with the lease, to which the
interval has to fit. Addresses and their tokens are of no use to the process.
"""
UNUSED = "unused"
"""The password of a source that only capture connects to."""


class PipelineText(msgspec.Struct, frozen=True):
    """The text of a configuration with one pipeline, in which secrets are names of files and of variables."""

    name: str = msgspec.field(name="name")
    file: str = msgspec.field(name="file")
    text: str = msgspec.field(name="text")
    changes: tuple[tuple[tuple[str, ...], str], ...] = msgspec.field(name="changes", default=())
    """See ConfigText."""


def select_pipeline_text(made_of: ConfigText, name: str) -> PipelineText:
    """Return the text that the pipeline `name` needs: itself, its target, its sources, Kafka, and the lease.

    A source that rowlock captures has no password: only capture connects to it. The text has been read
    as a configuration before.
    """
    root: Any = yaml.compose(made_of.text, yaml.SafeLoader)
    pipelines = _find_section(root, "pipelines")
    pipeline = _find_section(pipelines, name)
    target, sources = _find_section(pipeline, "target"), _find_section(pipeline, "sources")
    _keep_keys(pipelines, {name})
    _keep_keys(_find_section(root, "targets"), {str(target.value)})
    kept = _find_section(root, "sources")
    _keep_keys(kept, {str(each.value) for each in sources.value})
    for _, source in kept.value:
        _drop_unused_password(source)
    for section, node in root.value:
        if section.value == "coordination":
            _keep_keys(node, LEASE_KEYS)
    _keep_keys(root, {"kafka", "sources", "targets", "pipelines", "state_dir", "coordination"})
    changes = tuple(each for each in made_of.changes if _is_needed(each[0]))
    return PipelineText(name, made_of.file, str(yaml.serialize(root, allow_unicode=True)), changes)


def _is_needed(place: tuple[str, ...]) -> bool:
    """Return whether a value of the command line at `place` belongs to what is kept."""
    return place[0] != "coordination" or place[1] in LEASE_KEYS


def _find_section(node: yaml.Node, key: str) -> yaml.Node:
    found: yaml.Node = next(value for name, value in node.value if name.value == key)
    return found


def _keep_keys(node: yaml.Node, keys: Collection[str]) -> None:
    node.value = [(name, value) for name, value in node.value if name.value in keys]


def _drop_unused_password(source: yaml.Node) -> None:
    by_name = {name.value: value for name, value in source.value}
    if "events" in by_name and by_name["events"].value == "debezium":
        return
    source.value = [each for each in source.value if each[0].value not in ("password", "password_file")]
    text = "tag:yaml.org,2002:str"
    source.value.append((yaml.ScalarNode(text, "password"), yaml.ScalarNode(text, UNUSED)))
