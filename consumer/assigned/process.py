"""The work of `consumer.main`: instructions on stdin, one Spark session, a shell for each pipeline that has units.

The end of stdin, SIGTERM and SIGINT stop all units, each fenced, and end the process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import structlog

from consumer.assigned.lines import Asked, Lines, Said, decode_asked, split_name
from consumer.assigned.shell import PipelineShell, fault_ends_process
from consumer.assigned.source_times import SourceTimes
from consumer.assigned.warming import AFTER_S, warm_up
from consumer.pipeline import Pipeline
from consumer.running import DRAIN_S
from schemas.config import Config

log = structlog.get_logger(__name__)


class AssignedProcess:
    """All pipelines' units of an agent. `slots`: tasks of one query at once. `warm_after`: seconds (warming.AFTER_S)."""

    def __init__(
        self, config: Config, spark: Any, slots: int, lines: Lines, warm_after: float = AFTER_S
    ) -> None:
        self._warm_after = warm_after
        self._config = config
        self._spark = spark
        self._slots = slots
        self._lines = lines
        captured = [name for name, source in config.sources.items() if source.events == "rowlock"]
        self._times = SourceTimes(config.kafka, captured)
        self._shells: dict[str, PipelineShell] = {}

    def run(self, stop: threading.Event) -> None:
        """Do what stdin says until it ends or `stop` is set; then end everything."""
        self._times.start()
        reader = threading.Thread(target=self._read, args=(stop,), name="stdin", daemon=True)
        reader.start()
        warming = threading.Thread(target=self._warm_up, args=(stop,), name="warming", daemon=True)
        warming.start()
        stop.wait()
        warming.join(DRAIN_S)
        with ThreadPoolExecutor(max(1, len(self._shells)), "close") as pool:
            for shell in list(self._shells.values()):
                pool.submit(shell.close)
        self._times.close()

    def _warm_up(self, stop: threading.Event) -> None:
        with fault_ends_process(""):
            idle = lambda: not self._shells  # noqa: E731
            warm_up(self._config, self._spark, self._slots, after=self._warm_after, idle=idle, ended=stop)

    def _read(self, stop: threading.Event) -> None:
        with fault_ends_process(""):
            for line in _lines_of(0):
                if stop.is_set():
                    return
                self._take(line)
        stop.set()

    def _take(self, line: bytes) -> None:
        try:
            asked = decode_asked(line)
        except msgspec.DecodeError as error:
            log.error(
                "an instruction cannot be read", line=line[:200].decode(errors="replace"), error=str(error)
            )
            return
        place = split_name(asked.unit)
        if place is None or place[0] not in self._config.pipelines:
            why = f"{asked.unit}: no pipeline of the configuration has this unit"
            self._lines.say(Said(asked.unit, asked.epoch, "ended", asked.mark, error=why))
            return
        try:
            self._do(asked, *place)
        except Exception as error:  # of this unit or its pipeline: the others go on
            log.error("an instruction failed", unit=asked.unit, do=asked.do, exc_info=True)
            why = f"{asked.unit}: rowlock itself failed ({type(error).__name__}: {error})"
            self._lines.say(Said(asked.unit, asked.epoch, "ended", asked.mark, error=why))

    def _do(self, asked: Asked, pipeline: str, topic: str) -> None:
        shell = self._shell(pipeline)
        actions: dict[str, Callable[[], None]] = {
            "open": lambda: shell.open(topic, asked.epoch, asked.mark),
            "start": lambda: shell.start_unit(topic, asked.epoch),
            "stop": lambda: shell.stop_unit(topic, asked.epoch),
        }
        actions[asked.do]()

    def _shell(self, name: str) -> PipelineShell:
        shell = self._shells.get(name)
        if shell is None:
            pipeline = Pipeline.of(self._config, name, self._slots)
            shell = self._shells[name] = PipelineShell(pipeline, self._spark, self._lines, self._times)
            shell.start()
        return shell


def _lines_of(descriptor: int) -> Iterator[bytes]:
    """Yield whole lines as they come; what stands without an end when the input ends is dropped."""
    rest = b""
    while chunk := os.read(descriptor, 1 << 16):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())
