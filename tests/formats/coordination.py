"""The coordinator's control topic and its REST interface. The messages of its gRPC are in
tests/wire_golden.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from coordinator.control import codec
from coordinator.core.records import StoredRecord, build_record_key
from coordinator.rest import copies, models
from tests.formats.samples import sample
from tests.formats.structure import Case, Structure

_M = TypeVar("_M", bound=BaseModel)
_RECORDS: tuple[StoredRecord, ...] = tuple(sample(kind) for kind in StoredRecord.__args__)
_MESSAGES: Mapping[str, codec.Message] = {
    "claim": sample(codec.Claim),
    "snapshot": sample(codec.Snapshot),
    "beat": sample(codec.Beat),
    "resigned": sample(codec.Resigned),
    "records": codec.Changes(
        4711, (*((build_record_key(each), each) for each in _RECORDS), ("paused/u", None))
    ),
}
_ANSWERS: tuple[type[BaseModel], ...] = (
    models.Leader, models.AgentList, models.UnitList, models.PipelineList, models.Counters, models.EventList,
    models.Health, models.Readiness, models.Accepted, models.Reloaded, models.ProblemResponse,
    copies.CopyAccepted, copies.CopyList,
)  # fmt: skip
_QUESTIONS: tuple[type[BaseModel], ...] = (
    models.EventQuery, models.ReloadQuery, models.UnitQuery, models.MoveTo, copies.CopyTable,
    copies.CancelCopy, copies.CopyRate,
)  # fmt: skip


def _json(model: BaseModel) -> bytes:
    return model.model_dump_json(by_alias=True).encode()


def _question(kind: type[_M]) -> Case:
    def read(data: bytes) -> Any:
        return kind.model_validate_json(data)

    return Case(kind.__name__, sample(kind), _json, read)


STRUCTURES = (
    Structure(
        "control-topic",
        tuple(
            Case(name, message, codec.encode_message, codec.decode_message)
            for name, message in _MESSAGES.items()
        ),
        (codec._Wire, *StoredRecord.__args__),
    ),
    Structure(
        "rest-answers",
        tuple(Case(kind.__name__.removesuffix("Response"), sample(kind), _json, None) for kind in _ANSWERS),
        _ANSWERS,
    ),
    Structure("rest-questions", tuple(_question(kind) for kind in _QUESTIONS), _QUESTIONS),
)
