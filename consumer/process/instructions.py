"""The work of `consumer.main`: it reads instructions from stdin, runs a shell for each pipeline that has
units, and starts Spark beside them, whose tasks are the slots in which units are applied.

A line of stdin may also be a new configuration. A pipeline that it changes has two shells for a while: new
units are prepared in the new one, earlier ones stay in the old one, which ends with its last unit. Both may
run at once. No unit is in both, because a unit is prepared again only after it has ended.

The end of stdin, SIGTERM and SIGINT stop all units, each fenced, and end the process.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from consumer.errors import SparkStartError
from consumer.process.pipeline_shell import PipelineShell
from consumer.process.spark_beside import SparkStarter, log_failed_start
from consumer.reporting.protocol import LineWriter, decode_command
from consumer.reporting.source_times import SourceTimes
from consumer.slots.faults import FAULT_EXIT_CODE, fault_ends_process
from consumer.slots.own_slot import OwnSlot
from consumer.slots.pipeline import PipelineSettings
from consumer.slots.pool import SlotPool
from consumer.spark.query import end_with_java
from consumer.targets.dialect import load_dialect
from schemas.config.changes.handed import is_handed, rebuild_config
from schemas.config.changes.parts import collect_config_parts, compute_part_digests, format_pipeline_part
from schemas.config.model import Config
from schemas.io.input_lines import UNREADABLE, describe_line, read_lines
from schemas.io.kafka_passwords import use_kafka_passwords
from schemas.problems import Problem, encode_problem
from schemas.units import ApplyName, UnitCommand, UnitOperation, WorkerEnded, parse_unit_name

if TYPE_CHECKING:
    from consumer.process.spark_session import Spark
    from consumer.process.spark_slots import SparkSlots

log = structlog.get_logger(__name__)

NO_SPARK = 5
"""Exit code of a process that could not start Spark."""


class PipelineShells:
    """The shells of an apply process. Instructions come from one thread.

    `make`: returns a shell that is not started.
    """

    def __init__(self, config: Config, make: Callable[[PipelineSettings], PipelineShell]) -> None:
        self._config, self._make = config, make
        self._mutex = threading.Lock()
        self._now: dict[str, PipelineShell] = {}
        self._before: list[PipelineShell] = []
        self._of: dict[str, PipelineShell] = {}
        self._made: Counter[str] = Counter()

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
        pipeline = PipelineSettings.from_config(self._config, name)
        if made := self._made[name]:  # the state_dir of the replaced shell is still in use
            pipeline = replace(pipeline, state_dir=pipeline.state_dir.with_name(f"{name}.{made}"))
        shell = self._make(pipeline)
        with self._mutex:
            self._made[name] += 1
            self._now[name] = shell
        shell.start()
        return shell

    def apply_configuration(self, config: Config) -> set[str]:
        """Apply a new configuration; return the pipelines that it changes or removes."""
        before, after = collect_config_parts(self._config), collect_config_parts(config)
        changed = {
            name
            for name in self._config.pipelines
            if before[format_pipeline_part(name)] != after.get(format_pipeline_part(name))
        }
        known, found = compute_part_digests(self._config), compute_part_digests(config)
        if config.kafka != self._config.kafka:  # in the password: nothing else can change
            for shell in [*self._now.values(), *self._before]:
                shell.use_kafka(config.kafka)
        self._config = config
        for name in changed & set(self._now):
            with self._mutex:
                shell = self._now.pop(name)
                self._before.append(shell)
            part = format_pipeline_part(name)
            if known[part] == found.get(part):  # otherwise the coordinator removes the units
                shell.replace_secrets(config.targets[config.pipelines[name].target])
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


class ApplyProcess:
    """The apply process of an agent, which runs the units of all pipelines."""

    def __init__(self, config: Config, lines: LineWriter) -> None:
        self._config, self._lines = config, lines
        self._times = SourceTimes(config.kafka, list_captured_sources(config))
        self._pool = SlotPool()
        self._own_slot = OwnSlot(self._pool)
        self._shells = PipelineShells(
            config, lambda pipeline: PipelineShell(pipeline, self._pool, lines, self._times)
        )
        self._spark_slots: SparkSlots | None = None
        self._code = 0

    def run(self, stop: threading.Event) -> int:
        """Carry out the instructions of stdin until it ends or `stop` is set, then stop all units;
        return the exit code.
        """
        beside = SparkStarter(
            self._config,
            on_up=lambda spark, seconds: self._provide_spark(spark, seconds, stop),
            on_slow=lambda seconds: self._lines.write(_encode_slow_line(seconds)),
            on_failure=lambda: self._request_end(stop, NO_SPARK),
        )
        beside.start()
        self._own_slot.start()
        self._times.start()
        for name in self._config.pipelines:  # loads the drivers before the first unit arrives
            with suppress(ImportError):
                load_dialect(self._config.targets[self._config.pipelines[name].target])
        reader = threading.Thread(target=self._read_instructions, args=(stop,), name="stdin", daemon=True)
        reader.start()
        stop.wait()
        self._shells.close()
        self._times.close()
        self._pool.close()
        self._own_slot.close()
        if self._spark_slots is not None:
            self._spark_slots.close()
        beside.stop()
        return self._code

    def _request_end(self, stop: threading.Event, code: int) -> None:
        self._code = code
        stop.set()

    def _provide_spark(self, spark: Spark, seconds: float, stop: threading.Event) -> None:
        """Start slots in Spark. Runs in Spark's thread, which imports gRPC for them."""
        from consumer.process.spark_slots import SparkSlots

        with fault_ends_process("Spark"):
            end_with_java(spark.java, stop, os._exit)
            self._lines.write(_encode_ready_line(seconds))
            config = self._config
            try:
                self._spark_slots = SparkSlots(
                    self._pool, spark, config.spark, config.state_dir, stop, lines=self._lines
                )
            except SparkStartError as error:
                log_failed_start(error)
                self._request_end(stop, NO_SPARK)
                return
            self._spark_slots.run()

    def _read_instructions(self, stop: threading.Event) -> None:
        """Carry out the lines of stdin. After one that cannot be read, what the units are to do is uncertain:
        the process ends.
        """
        with fault_ends_process("stdin"):
            for line in read_lines(0):
                if stop.is_set():
                    return
                try:
                    read = rebuild_config(line) if is_handed(line) else decode_command(line)
                except UNREADABLE as error:
                    log.critical(
                        "process ends: line of standard input cannot be read",
                        line=describe_line(line),
                        error=f"{type(error).__name__}: {error}",
                    )
                    self._request_end(stop, FAULT_EXIT_CODE)
                    return
                if isinstance(read, Config):
                    self._apply_configuration(read)
                else:
                    self._take_command(read)
        stop.set()

    def _take_command(self, asked: UnitCommand) -> None:
        place = parse_unit_name(asked.unit)
        if not isinstance(place, ApplyName) or not self._shells.is_known(asked.unit, place.pipeline):
            why = encode_problem(Problem(f"{asked.unit}: no pipeline of the configuration has this unit"))
            self._lines.report_event(asked.unit, WorkerEnded(asked.assignment, asked.mark, why))
            return
        try:
            self._carry_out_command(asked, *place)
        except Exception as error:  # of this unit or its pipeline: the others continue
            log.error("instruction failed", unit=asked.unit, do=asked.do.value, exc_info=True)
            why = encode_problem(
                Problem(f"{asked.unit}: internal error of rowlock ({type(error).__name__}: {error})")
            )
            self._lines.report_event(asked.unit, WorkerEnded(asked.assignment, asked.mark, why))

    def _carry_out_command(self, asked: UnitCommand, pipeline: str, topic: str) -> None:
        if asked.do is UnitOperation.PREPARE:
            self._shells.assign_shell(asked.unit, pipeline).prepare_unit(topic, asked.assignment, asked.mark)
            return
        shell = self._shells.get_shell(asked.unit, pipeline)
        actions: dict[UnitOperation, Callable[[], None]] = {
            UnitOperation.START: lambda: shell.start_unit(topic, asked.assignment),
            UnitOperation.REMOVE: lambda: shell.remove_unit(topic, asked.assignment),
        }
        actions[asked.do]()

    def _apply_configuration(self, config: Config) -> None:
        """Apply a new configuration.

        The agent has built it from the same text, so it cannot be rejected here.
        """
        self._config = config.model_copy(update={"state_dir": self._config.state_dir})
        use_kafka_passwords(config)
        self._times.follow_sources(list_captured_sources(config))
        changed = self._shells.apply_configuration(self._config)
        log.info("configuration adopted", pipelines=sorted(changed))


def _encode_ready_line(seconds: float) -> str:
    return json.dumps({"kind": "ready", "seconds": round(seconds, 2)}) + "\n"


def _encode_slow_line(seconds: float) -> str:
    why = (
        f"Spark has not started after {seconds:.0f} s: the apply process applies everything itself until "
        "then, with one processor"
    )
    return json.dumps({"kind": "problem", "what": "Spark starts slowly", "why": why}) + "\n"


def list_captured_sources(config: Config) -> list[str]:
    """Return the sources that rowlock captures itself. These have watermarks."""
    return [name for name, source in config.sources.items() if source.events == "rowlock"]
