"""The documents of `--output json`, which are a contract (docs/reference/cli.md).

The documents of `units`, `agents`, `pipelines`, `events`, `copy` and `reload` are REST's answers
(tests/formats/coordination.py).
"""

from __future__ import annotations

import json
from typing import Any

from consumer.ordering.model import QuarantineEntry, ResolvedEntry
from consumer.tables.router import ResolvedRoute
from rowlock.commands.tables import as_dict
from rowlock.inspect.compare import Difference, RowDifference
from rowlock.inspect.cutover import NumberedColumn
from rowlock.inspect.observed.displaced import DisplacedRows
from rowlock.inspect.pairs import TablePair
from rowlock.inspect.planned.plan import PlannedLayout, PlannedTable, PlannedTarget, PlannedTopic, RunPlan
from rowlock.inspect.quarantine import QuarantinedEvent, ResolvedEvent
from rowlock.inspect.status import Status
from rowlock.inspect.verify import PairResult
from rowlock.views.retention import Backlog, RetentionLimits
from schemas.findings import Finding
from tests.formats.samples import sample
from tests.formats.source_topics import KEYED
from tests.formats.structure import Case, Structure

_HELD = QuarantinedEvent("to-hq", "hq", "rowlock.b1.bank.acct", sample(QuarantineEntry), uncertain=True)


def _json(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


def _documented(entry: Any) -> bytes:
    return _json(entry.as_dict())


_RESULT = PairResult(
    TablePair("to-hq", "branch1", KEYED, "hq", ResolvedRoute("public", "acct")),
    rows=17,
    kept=5,
    findings=[RowDifference(Difference.DIFFERENT, ("north", "1"), ("age",), moving=True)],
    complete=True,
    more=True,
    problem="a problem",
    note="a note",
)

STRUCTURES = (
    Structure("cli-status", (Case("status", sample(Status), _documented, None),), (Status,)),
    Structure(
        "cli-check",
        (
            Case("finding", sample(Finding), lambda it: _json(as_dict(it)), None),
            Case(
                "headroom",
                Backlog(
                    "source b1",
                    "its log",
                    RetentionLimits(7200.0, "days", 4096, "size"),
                    60.5,
                    "capture",
                    1024,
                    3,
                ),
                _documented,
                None,
            ),
            Case("plan", sample(RunPlan), _documented, None),
        ),
        (PlannedTable, PlannedTarget, PlannedLayout, PlannedTopic),
    ),
    Structure("cli-verify", (Case("result", _RESULT, _documented, None),)),
    Structure(
        "cli-quarantine",
        (
            Case(
                "held",
                QuarantinedEvent(
                    "to-hq", "hq", "rowlock.b1.bank.acct", sample(QuarantineEntry), uncertain=True
                ),
                _documented,
                None,
            ),
            Case("displaced", sample(DisplacedRows), _documented, None),
            Case(
                "resolved",
                ResolvedEvent(
                    QuarantinedEvent(
                        "to-hq", "hq", "rowlock.b1.bank.acct", sample(QuarantineEntry), uncertain=True
                    ),
                    sample(ResolvedEntry),
                ),
                _documented,
                None,
            ),
        ),
        (DisplacedRows,),
    ),
    Structure("cli-cutover", (Case("column", sample(NumberedColumn), _documented, None),), (NumberedColumn,)),
)
