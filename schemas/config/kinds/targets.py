"""The kinds of targets: the one table that a new kind is entered in (docs/how-to/add-a-target.md).

The configuration takes these words as `type` of a target; apply finds the modules by them. Data only: nothing of a kind is imported here, but
that an installed package brings one is asked for a word that the table does not have.
"""

from __future__ import annotations

from dataclasses import dataclass

ENTRY_POINTS = "rowlock.targets"
"""The group of entry points by which a package of somebody else's brings a kind: `word = module:KIND`."""


@dataclass(frozen=True, slots=True)
class TargetKind:
    """`attribute` of `module` is its `consumer.targets.dialect.Dialect`.

    `warm`: further modules that it would import with its first table: workers import them before they are forked.
    `batches`: it takes whole batches (consumer.targets.batches), and has no sessions. `events`: and of these every change as an event, in
    topics (docs/adr/0030-kafka-as-a-target.md); its section is a `KafkaTargetConfig`.
    """

    module: str
    attribute: str
    warm: tuple[str, ...] = ()
    batches: bool = False
    events: bool = False
    port: int = 0
    """The port that its servers usually listen on: the default of the section's `port`. 0: there is none."""


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
    """Return the kind that the configuration calls `word`. Raises KeyError: there is none; ValueError, TypeError and whatever an installed
    package raises: it is not told which one is meant, or the package is wrong."""
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
