"""The configuration's servers: the Kafka cluster, sources and targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PrivateAttr, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from schemas.config.addresses import split_address
from schemas.config.base import ConfigModel, Port, Text
from schemas.config.kinds.sources import SOURCE_KINDS
from schemas.config.kinds.targets import TARGET_KINDS, TargetKind, find_target_kind
from schemas.config.online_ddl import OnlineDdlConfig, enable_all_tools


class KafkaConfig(ConfigModel):
    """The Kafka cluster between sources and targets."""

    bootstrap: Text = Field(description="Brokers to begin with: `host:port`, several separated by commas.")
    prefix: Text = Field(
        default="rowlock",
        description="First part of every topic's name. Letters, digits, `.`, `_`, `-`. Two installations on "
        "one cluster need two prefixes.",
    )
    replication: int = Field(
        default=1, ge=1, le=32767, description="Replication factor of the topics that rowlock creates."
    )
    options: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="Any librdkafka setting for clients: `security.protocol`, `sasl.*`, `ssl.*`. Settings "
        "that carry the guarantees (acks, idempotence, time-outs of messages) are refused. "
        "`sasl.password_file: F` reads a file.",
    )


class TlsConfig(ConfigModel):
    """TLS towards a database."""

    verify: Literal["full", "ca", "none"] = Field(
        default="full",
        description="`full`: certificate and host name are checked; `ca`: certificate "
        "only; `none`: encrypted only.",
    )
    ca: Path | None = Field(
        default=None, description="File with the certificates to trust (default: the system's)."
    )
    cert: Path | None = Field(default=None, description="File with rowlock's own certificate.")
    key: Path | None = Field(default=None, description="File with rowlock's own private key.")


def _require_known_kind(kind: str, kinds: Iterable[str]) -> str:
    """Return `kind` if it is known; otherwise raise what pydantic raises for a Literal of the known kinds."""
    if kind not in kinds:
        *others, last = (f"'{each}'" for each in kinds)
        expected = f"{', '.join(others)} or {last}"
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
    return kind


def _with_port(raw: Any, port: int) -> Any:
    """Return the section `raw`, with the usual `port` of the kind if `raw` names none and the kind has
    one.
    """
    if not port or not isinstance(raw, Mapping) or "port" in raw:
        return raw
    return {**raw, "port": port}


def _require_source_kind(kind: str) -> str:
    return _require_known_kind(kind, SOURCE_KINDS)


class ColumnsConfig(ConfigModel):
    """The columns of some tables that capture publishes."""

    leave_out: list[Text] = Field(
        min_length=1,
        description="Columns that are not published: they are in no event, no definition, no snapshot and "
        "no copy, and capture does not hold their values. Upper and lower case do not matter. Columns of the "
        "key and of unique indexes cannot be left out.",
    )


class SourceConfig(ConfigModel):
    """A database whose changes are captured. Its name (letters, digits, `_`, `-`) becomes part of its topics'
    names."""

    type: Annotated[str, AfterValidator(_require_source_kind)] = Field(
        description="Kind of database.", json_schema_extra={"enum": list(SOURCE_KINDS)}
    )
    host: str = Field(default="", description="Host name or address. Required, unless there are `hosts`.")
    port: Port = Field(
        default=0,  # until the validator below fills in the port of the kind
        description="TCP port (MySQL and MariaDB: 3306, Oracle: 1521).",
        json_schema_extra={"default": "the server's"},
    )
    hosts: list[Text] = Field(
        default_factory=list,
        description="MySQL and MariaDB, instead of `host` and `port`: the primary and its replicas, each as "
        "`host:port`. Capture reads the only one that accepts writes, and continues at another server by "
        "GTID when that one does (see `rowlock docs failover`).",
    )
    database: str = Field(
        default="",
        description="Oracle: name of the service to connect to. Not for other databases.",
    )
    user: Text = Field(description="User to connect as; `rowlock check` prints the grants that are missing.")
    password: SecretStr = Field(
        description="Its password: `${NAME}` from the environment, or `password_file: F` instead of it."
    )
    tables: list[str] = Field(
        min_length=1,
        description="Captured tables: `database.table` with `*` and `?`; `!` before a pattern excludes "
        "tables (with `!` it needs quotes). The last pattern that matches a table decides. The first dot "
        "separates database and table; "
        'text in backticks is taken literally: ``"bank.`a.b`"`` is the table `a.b`, ``"`my.db`.*"`` all '
        "tables of `my.db`.",
    )
    columns: dict[str, ColumnsConfig] = Field(
        default_factory=dict,
        description="MySQL and MariaDB: pattern of tables, as in `tables` but without `!` → which of their "
        "columns are published (default: all). The last pattern that matches a table decides. If the option "
        "changes for a table that has a topic, the table stops until it is copied.",
    )
    snapshot: Literal["initial", "never", "only"] = Field(
        default="initial",
        description="`initial`: existing rows first, in chunks, while changes go on; `never`: changes "
        "only; `only`: existing rows only.",
    )
    copy_rows_per_second: int = Field(
        default=10_000,
        ge=0,
        description="Maximum of rows a second that a copy of a table reads, if it was requested without a "
        "rate or by rowlock itself: the changes of other tables wait for its rows. `0`: no limit.",
    )
    topics: Literal["table"] = Field(
        default="table",
        description="`table`: one topic for each table.",
    )
    online_ddl: OnlineDdlConfig = Field(
        default_factory=enable_all_tools,
        description="Tools that alter a table through a copy that replaces it: a list of `gh-ost` and "
        "`pt-osc` (default: both), or the keys below. Their tables are left out of `tables:` unless a "
        "pattern names one literally, and their changes are replicated "
        "(see `rowlock docs schema-tools`). `[]`: none.",
    )
    large_transactions: Literal["read-again", "spill"] = Field(
        default="read-again",
        description="A transaction above 64 MB: `read-again`: after its commit, the log is read a second "
        "time; `spill`: its events wait, unencrypted, in an unnamed file under `state_dir`.",
    )
    events: Literal["rowlock", "debezium"] = Field(
        default="rowlock",
        description="Program that captures the source and writes its topics. `debezium`: a connector "
        "of Debezium's for MySQL or MariaDB does, with `topic.prefix` = "
        "`<kafka.prefix>.<name of this source>`; rowlock only applies them, and reads here "
        "the tables' definitions (see `rowlock docs debezium`).",
    )
    decimals: Literal["precise", "string"] = Field(
        default="precise",
        description="With `events: debezium`: the connector's "
        "`decimal.handling.mode`; the events do not show it.",
    )
    binaries: Literal["bytes", "base64", "base64-url-safe", "hex"] | None = Field(
        default=None,
        description="With `events: debezium`: the connector's `binary.handling.mode`. Without this "
        "setting, `bytes` is expected, and without schemas a value that could also be "
        "hexadecimal stops its table.",
    )
    times: Literal["adaptive_time_microseconds"] | None = Field(
        default=None,
        description="With `events: debezium`: the connector's `time.precision.mode`. Without this setting "
        "and without schemas, a TIME or DATETIME(4…6) that could also count milliseconds "
        "(`connect`) stops its table.",
    )
    tls: TlsConfig | None = Field(default=None, description="TLS towards the database (default: none).")

    @model_validator(mode="before")
    @classmethod
    def _set_default_port(cls, raw: Any) -> Any:
        word = raw.get("type") if isinstance(raw, Mapping) else None
        kind = SOURCE_KINDS.get(word) if isinstance(word, str) else None
        if isinstance(raw, Mapping) and raw.get("hosts"):
            return raw  # each of them has a port
        return _with_port(raw, kind.port if kind else 0)

    @property
    def left_out_columns(self) -> dict[str, list[str]]:
        """Pattern of tables → the columns that are not published."""
        return {pattern: each.leave_out for pattern, each in self.columns.items()}

    def list_servers(self) -> tuple[SourceConfig, ...]:
        """Return the section for each of its servers, with `host` and `port`; one, unless there are
        `hosts`.
        """
        return tuple(map(self._build_server, self.hosts)) or (self,)

    def _build_server(self, address: str) -> SourceConfig:
        host, port = split_address(address)
        return self.model_copy(update={"host": host, "port": port, "hosts": []})


def _require_target_kind(kind: str) -> str:
    try:
        find_target_kind(kind)
    except KeyError:
        return _require_known_kind(kind, TARGET_KINDS)  # which raises
    except Exception as error:
        why = {"why": f"{type(error).__name__}: {error}"}
        raise PydanticCustomError("target_kind", "repair the package that provides it: {why}", why) from error
    return kind


class TargetConfig(ConfigModel):
    """A database that is written."""

    type: Annotated[str, AfterValidator(_require_target_kind)] = Field(
        description="Kind of target.", json_schema_extra={"enum": list(TARGET_KINDS)}
    )
    host: Text = Field(description="Host name or address.")
    port: Port = Field(
        default=0,  # until the validator below fills in the port of the kind
        description="TCP port (PostgreSQL: 5432, MySQL and MariaDB: 3306, Oracle: 1521).",
        json_schema_extra={"default": "the server's"},
    )
    user: Text = Field(description="User to connect as.")
    password: SecretStr = Field(
        description="Its password: `${NAME}` from the environment, or `password_file: F` instead of it."
    )
    database: Text = Field(
        description="Database to connect to; rowlock's bookkeeping tables (`rowlock_progress`, …) live in "
        "it. Oracle: the service name; they live in the user's schema."
    )
    tls: TlsConfig | None = Field(default=None, description="TLS towards the database (default: none).")

    @model_validator(mode="before")
    @classmethod
    def _set_default_port(cls, raw: Any) -> Any:
        kind = _find_known_target_kind(raw)
        return _with_port(raw, kind.port if kind else 0)


class KafkaTargetConfig(TargetConfig):
    """A Kafka cluster that is written: `type: kafka` has these keys and no others; those of a database are
    not for it."""

    host: str = Field(default="", description="Not for Kafka: use `bootstrap`.")
    port: int = Field(default=0, description="Not for Kafka: use `bootstrap`.")
    user: str = Field(default="", description="Not for Kafka: use `options`, for example `sasl.username`.")
    password: SecretStr = Field(
        default=SecretStr(""),
        description="Not for Kafka: use `options`, for example `sasl.password_file: F`.",
    )
    database: str = Field(default="", description="Not for Kafka.")
    tls: TlsConfig | None = Field(
        default=None, description="Not for Kafka: use `options`, for example `ssl.ca.location`."
    )
    bootstrap: Text = Field(description="Brokers to begin with: `host:port`, several separated by commas.")
    prefix: Text = Field(
        default="rowlock",
        description="First part of the names of rowlock's own topic there, `<prefix>.rowlock_progress`, "
        "and of its transactional ids.",
    )
    replication: int = Field(
        default=1, ge=1, le=32767, description="Replication factor of the topics that rowlock creates there."
    )
    options: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="Any librdkafka setting for clients, as `kafka.options`. Settings that "
        "carry the guarantees are refused.",
    )
    mask_salt: SecretStr = Field(
        default=SecretStr(""),
        description="Text that precedes every value that `sha256` masks: `${NAME}` from the "
        "environment, or `mask_salt_file: F`.",
    )
    _lease_s: float = PrivateAttr(default=10.0)

    @property
    def lease_s(self) -> float:
        """Seconds of a worker's lease (`coordination.lease_s`); no transaction of the worker stays open
        for longer.
        """
        return self._lease_s


def _find_known_target_kind(raw: object) -> TargetKind | None:
    """Return the kind of the section `raw` by its `type`; None if the kind is unknown, or its package
    cannot be loaded.
    """
    word = raw.get("type") if isinstance(raw, Mapping) else None
    try:
        return find_target_kind(word) if isinstance(word, str) else None
    except Exception:  # noqa: BLE001  # the validation of `type` reports what is wrong with it
        return None


def find_target_model(raw: object) -> type[TargetConfig]:
    """Return the model of a target, by its `type` in the file."""
    kind = _find_known_target_kind(raw)
    return KafkaTargetConfig if kind and kind.events else TargetConfig


def validate_by_type(raw: object) -> object:
    return find_target_model(raw).model_validate(raw) if isinstance(raw, Mapping) else raw
