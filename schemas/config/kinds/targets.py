"""The kinds of targets: the table in which a new kind is registered (docs/how-to/add-a-target.md).

The configuration accepts these words as `type` of a target, and apply finds the modules by them. Data
only: no module of a kind is imported here. For a word that is missing in the table, installed packages
are searched.
"""

from __future__ import annotations

from dataclasses import dataclass

ENTRY_POINTS = "rowlock.targets"
"""The group of entry points by which an external package adds a kind: `word = module:KIND`."""


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A kind of target: `attribute` of `module` is its `consumer.targets.dialect.Dialect`."""

    module: str
    attribute: str
    warm: tuple[str, ...] = ()
    """Further modules that its first table would import; workers import them before they are forked."""
    batches: bool = False
    """It takes whole batches (consumer.targets.batches), and has no sessions."""
    events: bool = False
    """It takes every change as an event, in topics (docs/adr/0030-kafka-as-a-target.md); implies
    `batches`.

    Its section is a `KafkaTargetConfig`.
    """
    port: int = 0
    """The port that its servers usually listen on, the default of the section's `port`; 0: there is none."""


_MYSQL = ("consumer.targets.mysql.dialect", ("sqlalchemy.dialects.mysql.pymysql",))

TARGET_KINDS = {
    "mysql": TargetKind(_MYSQL[0], "MYSQL", _MYSQL[1], port=3306),
    "mariadb": TargetKind(_MYSQL[0], "MARIADB", _MYSQL[1], port=3306),
    "postgres": TargetKind(
        "consumer.targets.postgres.dialect",
        "POSTGRES",
        ("sqlalchemy.dialects.postgresql.psycopg",),
        port=5432,
    ),
    "oracle": TargetKind("consumer.targets.oracle.dialect", "ORACLE", port=1521),
    "kafka": TargetKind("consumer.targets.kafka.dialect", "KAFKA", batches=True, events=True),
}


def find_target_kind(word: str) -> TargetKind:
    """Return the kind that the configuration calls `word`.

    Raises KeyError if there is none, ValueError if several packages have it, TypeError or whatever an
    installed package raises if that is faulty.
    """
    if word not in TARGET_KINDS:
        from importlib.metadata import entry_points  # it takes a while, and hardly anybody needs it

        found = {entry.value: entry for entry in entry_points(group=ENTRY_POINTS, name=word)}
        if len(found) > 1:
            raise ValueError(f"several packages bring {word!r}: {', '.join(sorted(found))}")
        for value, entry in found.items():
            kind = entry.load()
            if not isinstance(kind, TargetKind):
                raise TypeError(f"{value} is no TargetKind but {type(kind).__name__}")
            TARGET_KINDS[word] = kind
    return TARGET_KINDS[word]
