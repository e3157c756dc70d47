"""The shells of an apply process: one for each pipeline that has units, and those that a new
configuration replaced.

A pipeline that the configuration changed has two shells for a while: new units are prepared in the new
one, earlier ones stay in the old one, which ends with its last unit. Both may run at once. No unit is in
both, because a unit is prepared again only after it has ended.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from consumer.process.effect_runner import fault_ends_process
from consumer.process.pipeline_shell import PipelineShell
from consumer.spark.pipeline import PipelineSettings
from schemas.config.changes.parts import collect_config_parts, format_pipeline_part
from schemas.config.model import Config

if TYPE_CHECKING:
    from consumer.process.spark_session import Spark


class PipelineShells:
    """The shells of an apply process. Instructions come from one thread, Spark from another.

    `make`: returns a shell that is not started. `slots`: see PipelineSettings.
    """

    def __init__(self, config: Config, make: Callable[[PipelineSettings], PipelineShell], slots: int) -> None:
        self._config, self._make, self._slots = config, make, slots
        self._mutex = threading.Lock()
        self._now: dict[str, PipelineShell] = {}
        self._before: list[PipelineShell] = []
        self._of: dict[str, PipelineShell] = {}
        self._made: Counter[str] = Counter()
        self._spark: Spark | None = None

    @property
    def idle(self) -> bool:
        """True if no unit has been prepared yet."""
        return not self._made

    def is_known(self, unit: str, pipeline: str) -> bool:
        """Return whether the unit is here or could be prepared here."""
        return unit in self._of or pipeline in self._config.pipelines

    def assign_shell(self, unit: str, pipeline: str) -> PipelineShell:
        """Return the shell in which the unit is to be prepared.

        Raises KeyError for a pipeline that is not configured.
        """
        shell = self._now.get(pipeline)
        if shell is None:
            shell = self._start_shell(pipeline)
        with self._mutex:
            self._of[unit] = shell
        return shell

    def get_shell(self, unit: str, pipeline: str) -> PipelineShell:
        """Return the shell that has prepared the unit, otherwise that of `pipeline`.

        Raises KeyError as `assign_shell`.
        """
        return self._of.get(unit) or self.assign_shell(unit, pipeline)

    def _start_shell(self, name: str) -> PipelineShell:
        pipeline = PipelineSettings.from_config(self._config, name, self._slots)
        if made := self._made[name]:  # the state_dir of the replaced shell is still in use
            pipeline = replace(pipeline, state_dir=pipeline.state_dir.with_name(f"{name}.{made}"))
        shell = self._make(pipeline)
        with self._mutex:
            self._made[name] += 1
            self._now[name], spark = shell, self._spark
        if spark is not None:
            shell.provide_spark(spark)
        shell.start()
        return shell

    def provide_spark(self, spark: Spark) -> None:
        """Give the Spark session to the present and future shells."""
        with self._mutex:
            self._spark, shells = spark, [*self._now.values(), *self._before]
        for shell in shells:
            shell.provide_spark(spark)

    def apply_configuration(self, config: Config) -> set[str]:
        """Apply a new configuration; return the pipelines that it changes or removes."""
        before, after = collect_config_parts(self._config), collect_config_parts(config)
        changed = {
            name
            for name in self._config.pipelines
            if before[format_pipeline_part(name)] != after.get(format_pipeline_part(name))
        }
        self._config = config
        for name in changed & set(self._now):
            with self._mutex:
                shell = self._now.pop(name)
                self._before.append(shell)
            threading.Thread(
                target=self._retire_shell, args=(name, shell), name=f"retire {name}", daemon=True
            ).start()
        return changed

    def _retire_shell(self, name: str, shell: PipelineShell) -> None:
        with fault_ends_process(name):
            shell.close(once_without_units=True)
            with self._mutex:
                self._before.remove(shell)
                self._of = {unit: its for unit, its in self._of.items() if its is not shell}

    def close(self) -> None:
        """Stop all units. Afterwards nothing of this process can write any more."""
        with self._mutex:
            shells = [*self._now.values(), *self._before]
        with ThreadPoolExecutor(max(1, len(shells)), "close") as pool:
            for shell in shells:
                pool.submit(shell.close)
