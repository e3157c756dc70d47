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
    new_user: tuple[str, ...] = ()
    """Templates of the statements that create rowlock's user (rowlock/inspect/first_config/new_user.py)."""
    quote: str = '"'
    """The quotation mark of names in `new_user`."""


def _describe_mysql_kind(attribute: str, *more: str) -> TargetKind:
    """Return a kind of server with MySQL's protocol; `more`: further statements for a new user."""
    return TargetKind(
        "consumer.targets.mysql.dialect",
        attribute,
        ("sqlalchemy.dialects.mysql.pymysql",),
        port=3306,
        new_user=(
            "CREATE USER {account} IDENTIFIED BY '{password}';",
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, TRIGGER ON {tables} TO {account};",
            "GRANT PROCESS ON *.* TO {account};",
            *more,
        ),
        quote="`",
    )


TARGET_KINDS = {
    "mysql": _describe_mysql_kind("MYSQL", "GRANT SELECT ON performance_schema.* TO {account};"),
    "mariadb": _describe_mysql_kind("MARIADB"),
    "postgres": TargetKind(
        "consumer.targets.postgres.dialect",
        "POSTGRES",
        ("sqlalchemy.dialects.postgresql.psycopg",),
        port=5432,
        new_user=(
            "CREATE ROLE {user} LOGIN PASSWORD '{password}';",
            "GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {user};",
            "GRANT CREATE, USAGE ON SCHEMA public TO {user};  -- in the database {database}",
        ),
    ),
    "oracle": TargetKind(
        "consumer.targets.oracle.dialect",
        "ORACLE",
        port=1521,
        new_user=(
            'CREATE USER {USER} IDENTIFIED BY "{password}" QUOTA UNLIMITED ON users;',
            "GRANT CREATE SESSION, CREATE TABLE, CREATE SEQUENCE TO {USER};",
        ),
    ),
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
