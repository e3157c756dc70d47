"""Errors of the shared data model; each names the object, what was seen and the remedy."""

from __future__ import annotations

from schemas.problems import ProblemError


class SchemaError(ProblemError):
    """The base class of the errors of this package."""


class EnvelopeError(SchemaError):
    """A Kafka record is not a readable envelope: it is malformed, or written by a newer major version."""


class NoKeyError(SchemaError):
    """A table has neither a primary key nor a unique index over NOT NULL columns, so its rows have no
    identity.
    """


class ExpressionIndexError(SchemaError):
    """A unique index is over expressions: row images do not contain its values, so changes cannot be
    ordered by them.
    """


class UnsupportedTypeError(SchemaError):
    """rowlock cannot carry a column or table type, or the target has no lossless type for it."""


class TableNotFoundError(SchemaError):
    """The table does not exist, or this user may not see it."""


class ServerConnectError(SchemaError):
    """A database server cannot be reached or refuses the log-in. `transient`: a retry may help."""

    def __init__(self, what: str, remedy: str = "", *, transient: bool) -> None:
        super().__init__(what, remedy)
        self.transient = transient


class UnsupportedServerError(ServerConnectError):
    """A database server has a version that rowlock does not support. Never transient."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy, transient=False)


class ValueRefusedError(SchemaError):
    """The target's type cannot hold a value.

    `column`: its name; `reason`: why it is refused, without the value, which may be secret.
    """

    def __init__(self, column: str, reason: str, remedy: str = "") -> None:
        super().__init__(f"column {column}: {reason}", remedy)
        self.column = column
        self.reason = reason
