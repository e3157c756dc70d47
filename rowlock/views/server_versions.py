"""Checks for servers that rowlock cannot use, for commands that do not connect to them otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from consumer.errors import ConsumerError
from consumer.targets.dialect import open_target
from rowlock.views.source import has_view
from schemas.config.kinds.targets import find_target_kind
from schemas.config.model import Config, SourceConfig, TargetConfig
from schemas.errors import ServerConnectError, UnsupportedServerError
from schemas.io.mysql_connection import connect_source
from schemas.problems import Problem


def explain_unsupported_source(source: SourceConfig) -> Problem | None:
    """Connect to a source and return why its version is refused; None: it is supported, or does not
    answer.
    """
    error = _find_connect_error(source)
    return error.problem if isinstance(error, UnsupportedServerError) else None


def explain_refused_source(config: Config, name: str) -> Problem | None:
    """Connect to a source and return why capture would refuse it: its version, the log-in, its settings, or a
    right that its user lacks; None: nothing is wrong, or it does not answer.
    """
    from producer.errors import CaptureError, SourceRefusedError
    from producer.sources.known import load_source_database

    if (error := _find_connect_error(config.sources[name])) is not None:
        return None if error.transient else error.problem
    source = load_source_database(config, name)
    try:
        source.require_usable()
    except SourceRefusedError as refused:
        problem = refused.problem
        return replace(problem, what=problem.what.removeprefix(f"source {name}: "))
    except CaptureError:
        return None
    finally:
        source.close()
    return None


def _find_connect_error(source: SourceConfig) -> ServerConnectError | None:
    if has_view(source):
        return None
    try:
        connect_source(source).close()
    except ServerConnectError as error:
        return error
    return None


def explain_unsupported_target(target: TargetConfig) -> Problem | None:
    """Connect to a target and return why its version is refused; None: it is supported, or does not
    answer.
    """
    if find_target_kind(target.type).batches:
        return None
    try:
        with contextlib.closing(open_target(target, name="rowlock")):
            return None
    except ConsumerError as error:
        return error.problem if isinstance(error.__cause__, UnsupportedServerError) else None


def yield_unsupported_servers(config: Config, sources: list[str]) -> Iterator[str]:
    """Yield "source NAME: …" and "target NAME: …" for each refused server on the way of `sources`."""
    for name in sources:
        if (refused := explain_unsupported_source(config.sources[name])) is not None:
            yield f"source {name}: {refused}"
    flows = (each for each in config.pipelines.values() if not set(sources).isdisjoint(each.sources))
    for name in dict.fromkeys(each.target for each in flows):
        if (refused := explain_unsupported_target(config.targets[name])) is not None:
            yield f"target {name}: {refused}"
