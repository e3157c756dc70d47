"""The configuration: one YAML file, read once by every process of rowlock.

Programs read it only through `load_config`, which reports *all* problems at once (`ConfigErrors`), each
with the line, what was seen and what would be right. The models' descriptions are the reference:
docs/reference/configuration.md is generated from them (tools/docs/config.py). Secrets are `SecretStr`
and stay out of every repr, log and message.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from schemas.config.base import ConfigModel
from schemas.config.changes.text import ConfigText
from schemas.config.coordination import CoordinationConfig, CoordinationTls
from schemas.config.errors import ConfigErrors, ConfigProblem
from schemas.config.kinds.topics import TopicConfig
from schemas.config.online_ddl import OnlineDdlConfig
from schemas.config.servers import (
    ColumnsConfig,
    KafkaConfig,
    KafkaTargetConfig,
    SourceConfig,
    TargetConfig,
    TlsConfig,
    validate_by_type,
)
from schemas.config.spark import SparkConfig

__all__ = [
    "ColumnsConfig",
    "Config",
    "ConfigErrors",
    "ConfigProblem",
    "CoordinationConfig",
    "CoordinationTls",
    "KafkaConfig",
    "KafkaTargetConfig",
    "OnlineDdlConfig",
    "PipelineConfig",
    "RenameConfig",
    "RepairConfig",
    "Route",
    "SourceConfig",
    "SparkConfig",
    "TargetConfig",
    "TlsConfig",
    "TopicConfig",
    "load_config",
]


SchemaChanges = Literal["ignore", "lenient", "evolve", "stop"]


class RepairConfig(ConfigModel):
    """Repair of a table that can no longer be replicated. A bare `copy` or `stop` is its `mode`."""

    mode: Literal["copy", "stop"] = Field(
        default="copy",
        description="`copy`: the table is copied again automatically, within the limits below; `stop`: "
        "it waits for `rowlock copy`.",
    )
    max_rows: int = Field(
        default=50_000_000,
        ge=1,
        description="Larger tables (by the source's estimate) wait for `rowlock copy`.",
    )
    max_per_day: int = Field(
        default=3,
        ge=1,
        description="Maximum number of automatic copies of one table within a day, of which those with the "
        "same cause are at least an hour apart; the next one is postponed until then.",
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_bare_word(cls, value: object) -> object:
        return {"mode": value} if isinstance(value, str) else value


class RenameConfig(ConfigModel):
    """Names in the target. (For the name of a table, write a route of its own with `to`.)"""

    columns: dict[str, str] = Field(
        default_factory=dict,
        description="Column → its name in the target, for names that the target cannot have. It applies to "
        "every table of the route that has the column. A changed entry takes effect with a copy of the "
        "table. All other keys name a column as the source does.",
    )


class Route(ConfigModel):
    """A route: source tables, and the target tables that they go to. The first route that matches a table is
    used; a table without one is not applied."""

    from_: str = Field(
        alias="from",
        description="Source tables: `database.table` with `*`, `?` and backticks, as in `tables`.",
    )
    to: str = Field(
        description="Target table `schema.table` (MySQL: `database.table`); `{source}`, `{db}` and `{table}` "
        "are filled in, also if they contain dots. Write a name that contains a dot in backticks."
    )
    add: dict[str, str] = Field(
        default_factory=dict,
        description="Columns to add to every row, with their text; `{source}`, `{db}`, `{table}` are filled "
        "in. They join the primary key and every unique key of tables that rowlock creates, so that "
        "many sources fit into one table.",
    )
    rename: RenameConfig = Field(
        default_factory=RenameConfig, description="Columns that have another name in the target."
    )
    schema_changes: SchemaChanges | None = Field(
        default=None, description="For the tables of this route, instead of the pipeline's setting."
    )
    partitions: Literal["follow", "keep"] = Field(
        default="follow",
        description="Effect of DROP PARTITION, TRUNCATE PARTITION and CONVERT PARTITION at the source. "
        "`follow`: the target deletes the rows that the statement removed. `keep`: they stay in the target, "
        "through every later copy; `verify` counts them separately. Only for databases as targets, and "
        "sources that rowlock captures from a binlog.",
    )
    kafka: TopicConfig | None = Field(
        default=None,
        description="For a Kafka target: how its topics are written; `to` is then the topic "
        "`<schema>.<table>` (default: the defaults below).",
    )


class PipelineConfig(ConfigModel):
    """Sources → one target. Its name (letters, digits, `_`, `-`) is the key of its progress in the target:
    keep it."""

    sources: list[str] = Field(min_length=1, description="Names of sources.")
    target: str = Field(description="Name of the target.")
    routes: list[Route] = Field(
        default_factory=lambda: [Route.model_validate({"from": "*.*", "to": "{db}.{table}"})],
        min_length=1,
        description="Source tables and their target tables (default: every table keeps the "
        "schema and name of the source).",
    )
    consistency: Literal["row"] = Field(default="row", description="`row`: lanes commit on their own.")
    lanes: int = Field(
        default=4,
        ge=1,
        le=64,
        description="Ordered streams (threads, connections) for each topic that is being applied.",
    )
    schema_changes: SchemaChanges = Field(
        default="lenient",
        description="Effect of an ALTER TABLE at the source. `ignore`: nothing at the target; a row that no "
        "longer fits stops the table. `lenient`: the target follows additions and widenings, but "
        "nothing is dropped or narrowed. `evolve`: the target follows every change. `stop`: the "
        "table waits for an operator.",
    )
    on_drop: Literal["keep", "empty", "drop"] = Field(
        default="keep",
        description="Effect of DROP TABLE and DROP DATABASE at the source on the target's rows, "
        "independently of `schema_changes`.",
    )
    repair: RepairConfig = Field(
        default_factory=RepairConfig,
        description="Repair of a table that can no longer be replicated: `copy` or `stop`, or the keys "
        "below.",
    )
    conflicts: Literal["replace", "quarantine"] = Field(
        default="replace",
        description="Drift, that is, a row of another key has a unique value that an event needs: `replace` "
        "moves that row to `rowlock_displaced`; `quarantine` holds the event back instead.",
    )
    history: str = Field(
        default="30d",
        pattern=r"^([1-9][0-9]{0,4}[dh]|forever)$",
        description="Time for which `rowlock_quarantine_closed` keeps entries that have left the quarantine: "
        "days (`30d`), hours (`12h`) or `forever`. In a Kafka target the topic's own retention applies.",
    )
    create_tables: bool = Field(default=True, description="Create target tables that are missing.")
    max_gather: int | None = Field(
        default=None,
        ge=1,
        description="Maximum number of events in one transaction of a lane (default: chosen by "
        "load; 1: one row at a time).",
    )
    commit_every: float | None = Field(
        default=None,
        ge=0.1,
        le=86400,
        description="Seconds from one commit to the next, for a target that takes whole "
        "batches (default: 10; Kafka: 1).",
    )

    @property
    def history_ms(self) -> int | None:
        """Return `history` in milliseconds; None: forever."""
        if self.history == "forever":
            return None
        return int(self.history[:-1]) * {"h": 3_600_000, "d": 86_400_000}[self.history[-1]]


class Config(ConfigModel):
    """The whole file."""

    kafka: KafkaConfig = Field(description="The Kafka cluster.")
    state_dir: Path = Field(
        default=Path("state"),
        description="Folder for caches and logs; rowlock can recreate its content. "
        "Relative to the configuration file.",
    )
    spark: SparkConfig = Field(default_factory=SparkConfig, description="The Spark that runs the pipelines.")
    coordination: CoordinationConfig = Field(
        default_factory=CoordinationConfig, description="Coordinators and agents on several machines."
    )
    sources: dict[str, SourceConfig] = Field(min_length=1, description="Source databases, by name.")
    targets: dict[str, Annotated[TargetConfig, BeforeValidator(validate_by_type)]] = Field(
        default_factory=dict, description="Targets, by name."
    )
    pipelines: dict[str, PipelineConfig] = Field(
        default_factory=dict, description="Pipelines: the sources, the target, and the tables of each."
    )

    _path: Path = PrivateAttr(default=Path("config.yaml"))
    _lines: dict[tuple[str, ...], int] = PrivateAttr(default_factory=dict)
    _made_of: ConfigText = PrivateAttr(default=ConfigText("config.yaml", ""))

    @property
    def made_of(self) -> ConfigText:
        """Return the text of the configuration, to hand it to another process. It contains secrets."""
        return self._made_of

    @property
    def path(self) -> Path:
        """The file of the configuration, absolute when it came from `load_config`."""
        return self._path

    def find_line(self, *place: str) -> str:
        """Return "file:line" of the key at `place` ("sources", "branch1", "type"), or of the nearest
        enclosing key.
        """
        while place and place not in self._lines:
            place = place[:-1]
        return f"{self._path}:{self._lines[place]}" if place else str(self._path)


def load_config(
    path: Path | str,
    env: Mapping[str, str] | None = None,
    *,
    changes: Mapping[tuple[str, ...], str] | None = None,
) -> Config:
    """Read and check the file; relative paths in it are relative to it.

    `changes`: values of the command line that replace the file's, by place (("coordination", "rest")).

    Raises ConfigErrors with all problems, including values that only a later version supports
    (schemas/config/load.py).
    """
    from schemas.config.load import build_config  # the builder needs the models of this module

    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        problem = ConfigProblem(
            0, "", f"cannot be read: {error.strerror}", "give the configuration file with -c FILE"
        )
        raise ConfigErrors(str(path), [problem]) from error
    except UnicodeDecodeError as error:
        raise ConfigErrors(
            str(path), [ConfigProblem(0, "", "is not UTF-8 text", "save it as UTF-8")]
        ) from error
    return build_config(file, text, os.environ if env is None else env, changes or {})
