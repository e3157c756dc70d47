"""Mutants of what is stored or transmitted: a member gets another name, place or word, or a field leaves its name to the program."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_BYTES = ("tests/unit/test_stored_formats.py",)
_NAMES = ("tests/unit/test_stored_registry.py",)


def _of(file: str, *changes: tuple[str, str], tests: tuple[str, ...] = _BYTES) -> list[Mutant]:
    return [Mutant(file, old, new, tests) for old, new in changes]


_NEXT_REQUEST = '    behind: CopyRequest | None = msgspec.field(name="behind", default=None)\n'

MUTANTS = [
    *_of(
        "schemas/wire/records.py",
        (
            '    reason: str = msgspec.field(name="reason")\n    remedy: str = msgspec.field(name="remedy")\n    since_ms: int =',
            '    reason: str = msgspec.field(name="why")\n    remedy: str = msgspec.field(name="remedy")\n    since_ms: int =',
        ),
        (
            'happens\n    stops: dict[str, TableStop] = msgspec.field(name="stops"',
            'happens\n    stops: dict[str, TableStop] = msgspec.field(name="table_stops"',
        ),
    ),
    *_of(
        "schemas/wire/copies.py",
        (_NEXT_REQUEST, _NEXT_REQUEST.replace('"behind"', '"next"')),
        (
            '"waiting", "running", "done", "refused", "cancelled"',
            '"waiting", "runs", "done", "refused", "cancelled"',
        ),
    ),
    *_of("schemas/wire/copies.py", (_NEXT_REQUEST, "    behind: CopyRequest | None = None\n"), tests=_NAMES),
    *_of(
        "schemas/units.py",
        (
            '    checkpoint_ts: Int64 = msgspec.field(name="checkpoint_ts")\n    resolved_ts: Int64 = msgspec.field(name="resolved_ts")\n',
            '    resolved_ts: Int64 = msgspec.field(name="resolved_ts")\n    checkpoint_ts: Int64 = msgspec.field(name="checkpoint_ts")\n',
        ),
        ('    FORGET = "forget"  # report it', '    FORGET = "forgotten"  # report it'),
    ),
    *_of(
        "consumer/tables/stored.py",
        (
            '    rows_missing: bool = msgspec.field(name="lost"',
            '    rows_missing: bool = msgspec.field(name="rows_missing"',
        ),
    ),
    *_of(
        "consumer/targets/bookkeeping/quarantine.py",
        ('"table_name", "row_key", "folded_key"', '"table_name", "folded_key", "row_key"'),
    ),
    *_of(
        "producer/resume/topic_recovery.py",
        (
            'stop: TableStop | None = msgspec.field(name="stop", default=None)\n    copy: CopyMark | None = msgspec.field(name="copy", default=None)\n    log',
            'stop: TableStop | None = msgspec.field(name="end", default=None)\n    copy: CopyMark | None = msgspec.field(name="copy", default=None)\n    log',
        ),
    ),
    *_of(
        "coordinator/rest/models.py",
        ('serialization_alias="am_i"', 'serialization_alias="is_asked"'),
    ),
]
