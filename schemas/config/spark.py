"""The section `spark`: where the slots run in which tables are applied, and how executors on other machines
reach the agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from schemas.config.addresses import is_any
from schemas.config.base import ConfigModel, Text

if TYPE_CHECKING:
    from schemas.config.yaml_lines import YamlDocument

DEFAULT_CLUSTER_SLOTS = 2
"""Slots on a cluster if `spark.slots` is not given."""
MIN_TOKEN_LENGTH = 16
"""Characters that the text in `spark.executor_token_file` has at least."""
DriverPort = Annotated[int, Field(ge=0, le=65535)]

PERMITTED_OPTIONS = (
    "spark.authenticate",
    "spark.cores.max",
    "spark.driver.memoryOverhead",
    "spark.eventLog.",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.executor.resource.",
    "spark.executorEnv.",
    "spark.io.encryption.",
    "spark.kubernetes.",
    "spark.network.crypto.",
    "spark.network.timeout",
    "spark.rpc.",
    "spark.ssl.",
    "spark.ui.",
    "spark.yarn.",
)
"""Spark's settings that `spark.options` may have: these, and all that begin with those that end in a dot."""
REFUSED_OPTIONS: Mapping[str, str] = {
    "spark.executorEnv.PYTHONPATH": "rowlock sets it for spark.package",
}
"""Settings that are refused although their beginning is permitted → what to do instead."""
IN_DEFAULTS_FILE = (
    "give it in the spark-defaults.conf of SPARK_CONF_DIR, which only the agent's user may read: from here "
    "it would get into the command line of Java"
)


def _with_tries(master: str) -> str:
    """Return `spark.master`; a local one with a number of tries for each task.

    Spark's short forms have one try, so that a dead Python worker would end the query.
    """
    if not master.startswith("local"):
        if not re.match(r"(spark|k8s)://.|yarn\Z", master):
            raise PydanticCustomError("spark_master", "local[N,4], spark://host:port, yarn, or k8s://…")
        return master
    found = re.fullmatch(r"local(?:\[(\*|[1-9]\d*)(?:,\s*(\d+))?\])?", master)
    if found is None or int(found[2] or 4) < 2:
        raise PydanticCustomError(
            "spark_master", "local[N,4] (N tasks at once, or *; each tried 4 times, at least twice)"
        )
    return f"local[{found[1] or 1},{found[2] or 4}]"


def _write_booleans(raw: Any) -> Any:
    """Return the options with true and false as Spark writes them."""
    if not isinstance(raw, Mapping):
        return raw
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in raw.items()}


class SparkDriverConfig(ConfigModel):
    """The addresses at which executors on other machines reach the agent, which is Spark's driver. A port
    that is not given is a free one."""

    host: Text | None = Field(
        default=None,
        description="Host name or address of this machine, as executors reach it. Agents that share the file "
        "take it from the environment: `${NAME}`.",
    )
    port: DriverPort = Field(default=0, description="Port of Spark's own connections to the driver.")
    block_manager_port: DriverPort = Field(
        default=0, description="Port at which executors fetch from the driver what a task needs."
    )
    channel_port: DriverPort = Field(
        default=0, description="Port at which slots open their streams to the agent."
    )


class SparkConfig(ConfigModel):
    """The Spark that runs the pipelines. All keys but `master` and `memory` are for a cluster."""

    master: Annotated[str, AfterValidator(_with_tries)] = Field(
        default="local[2,4]",
        description="`local[N]` or `local[*]`: N slots, in which tables are applied, each a task of Spark "
        "that is tried up to four times before its query is started again (`local[N,F]`: F times); or a "
        "cluster: `spark://host:port`, `yarn`, `k8s://…`.",
    )
    memory: str = Field(
        default="1g",
        pattern=r"^[1-9][0-9]*[mg]$",
        description="Heap of an agent's Java process, which all its pipelines share.",
    )
    slots: int = Field(
        default=DEFAULT_CLUSTER_SLOTS,
        ge=1,
        le=1000,
        description="Number of slots of an agent on a cluster; each takes one core of an executor.",
    )
    driver: SparkDriverConfig = Field(
        default_factory=SparkDriverConfig, description="The addresses at which executors reach this agent."
    )
    executor_token_file: Path | None = Field(
        default=None,
        description=f"File with the text by which slots on a cluster prove themselves, {MIN_TOKEN_LENGTH} or "
        "more printable ASCII characters: at this path on the agent's machine and on those of the executors, "
        "readable by their users alone. A cluster needs it.",
    )
    secrets: Literal["channel", "executor"] = Field(
        default="channel",
        description="The way in which slots on a cluster get passwords: through the encrypted channel from "
        "the agent, or from files and environment of the executor, by the same names as in this file.",
    )
    package: Path | None = Field(
        default=None,
        description="The archive that `rowlock spark package` has written, which Spark sends to the "
        "executors (default: rowlock is installed for `python` on their machines).",
    )
    python: Text = Field(
        default="python3",
        description="The Python of a cluster's executors, with the same minor version as the agent's.",
    )
    insecure: bool = Field(
        default=False,
        description="true: use the cluster although the connections of its Spark are not authenticated "
        "and encrypted.",
    )
    options: Annotated[dict[str, str], BeforeValidator(_write_booleans)] = Field(
        default_factory=dict,
        repr=False,
        description="Spark's own settings: memory and cores of executors, UI, event log, encryption, and "
        "those of YARN and Kubernetes.",
    )

    @property
    def is_cluster(self) -> bool:
        """Return whether slots run in executors, which may be on other machines."""
        return not self.master.startswith("local")


def check_spark(spark: SparkConfig, document: YamlDocument) -> None:
    """Add a problem to `document` for each setting that rowlock cannot work with."""
    for name in spark.options:
        if problem := _explain_refused_option(name):
            document.add_problem(("spark", "options", name), *problem)
    if not spark.is_cluster:
        return
    host = spark.driver.host
    if host is None:
        document.add_problem(
            ("spark", "driver", "host"),
            f"executors of {spark.master} have to reach this agent, and 'host' is missing",
            "add driver: {host: NAME}, this machine's name or address in their network",
        )
    elif is_any(host):
        document.add_problem(
            ("spark", "driver", "host"),
            f"executors cannot connect to {host}",
            "give the name or address by which they reach this machine",
        )
    if spark.executor_token_file is None:
        document.add_problem(
            ("spark", "executor_token_file"),
            "slots on a cluster prove themselves by a token, and 'executor_token_file' is missing",
            "write a long random text into a file on this machine and on each executor's, and name it here",
        )
    if not spark.insecure and not _is_encrypted(spark.options):
        document.add_problem(
            ("spark", "master"),
            "the connections of this cluster's Spark are not authenticated and encrypted",
            "set options: {spark.authenticate: true, spark.network.crypto.enabled: true} here and on the "
            "cluster, or insecure: true in a network that you trust",
        )


def _explain_refused_option(name: str) -> tuple[str, str] | None:
    """Return what is wrong with an option, and what would be right; None: it is permitted."""
    if name in REFUSED_OPTIONS:
        return f"{name} cannot be set here", REFUSED_OPTIONS[name]
    if name.lower().endswith(("password", "secret", "token")):
        return f"{name} cannot be set here", IN_DEFAULTS_FILE
    if not any(name == each or (each.endswith(".") and name.startswith(each)) for each in PERMITTED_OPTIONS):
        return (
            f"{name} is not one of Spark's settings that can be given here",
            f"use {', '.join(each + ('*' if each.endswith('.') else '') for each in PERMITTED_OPTIONS)}",
        )
    return None


def _is_encrypted(options: Mapping[str, str]) -> bool:
    """Return whether Spark's connections are authenticated and encrypted."""
    by_tls = options.get("spark.ssl.rpc.enabled") == "true"
    by_key = options.get("spark.network.crypto.enabled") == "true"
    return options.get("spark.authenticate") == "true" and (by_key or by_tls)
