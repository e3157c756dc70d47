"""A child process of rowlock as its parent sees it: written to on stdin, read from on stdout, ended with
all it has started.

Each is started through rowlock/processes/child.py in a session of its own, so that none outlives this
process, however that ends.

Children always log JSON lines. If the parent logs for people, the lines are rendered for people here;
lines that are not JSON (Java's) pass through unchanged, but for `_QUIET_LINES`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

import psutil
import structlog

from rowlock import __version__
from rowlock.processes import log
from rowlock.processes.child import PARENT_VERSION
from schemas.config.changes import handed
from schemas.config.model import Config
from schemas.problems import Problem, encode_problem

_LOG = structlog.get_logger()
_LEVELS = {"debug", "info", "warning", "error", "critical"}
_QUIET_LINES = frozenset({b"WARNING: Using incubator modules: jdk.incubator.vector"})
"""Lines that Java writes at each start of Spark, because PySpark names this module; no option prevents it."""


def _follow_log(name: str, stderr: IO[bytes]) -> None:
    """Read a child's log to its end, in a thread of its own."""
    threading.Thread(target=_log_lines, args=(name, stderr), name=f"stderr {name}", daemon=True).start()


def _log_lines(name: str, lines: Iterable[bytes]) -> None:
    for raw in lines:
        fields = _parse_log_fields(raw)
        if fields is None or "event" not in fields:
            if raw.rstrip() not in _QUIET_LINES:
                _pass_line_on(raw)
            continue
        level = str(fields.pop("level", "info"))
        phrase = str(fields.pop("event"))
        fields.pop("timestamp", None)
        getattr(_LOG, level if level in _LEVELS else "info")(phrase, **{"child": name, **fields})


def _parse_log_fields(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line; None: the line is something else."""
    try:
        found = json.loads(raw)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _pass_line_on(raw: bytes) -> None:
    """Write a line that is not rowlock's unchanged to stderr.

    If stderr takes nothing any more, the line is lost: the thread has to go on to the child's reports.
    """
    with contextlib.suppress(OSError):
        sys.stderr.write(raw.decode(errors="replace"))
        sys.stderr.flush()


def _needs_log_rendering() -> bool:
    """Return whether children's log lines must be rendered here; otherwise they write to this process's
    stderr themselves.
    """
    return log.choose_log_style() == "console"


ChildCommand = Sequence[str]
OnLine = Callable[[dict[str, Any]], None]
OnExit = Callable[[int], None]


def build_child_command(module: str, config: Path, *rest: str) -> ChildCommand:
    """Return the command that starts `python -m module --config …` as a child."""
    return [sys.executable, "-m", "rowlock.processes.child", module, "--config", str(config), *rest]


def build_child_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the children's environment: this source tree, this version, and JSON log lines
    (`_follow_log`).
    """
    root = str(Path(__file__).resolve().parent.parent.parent)
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "ROWLOCK_LOG": "json"}
    return found | {PARENT_VERSION: __version__} | dict(more or {})


def kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def end_session(leader: int, seconds: float = 10.0) -> bool:
    """End every process of the session `leader`, also those in groups of their own. False: some are
    still running.

    Afterwards no process of the session can do anything any more. Without /proc only the leader's group
    is ended.
    """
    kill_group(leader)
    last = time.monotonic() + seconds
    while members := _list_members(leader):
        for process in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if time.monotonic() > last:
            _LOG.error("processes did not end", session=leader, processes=members)
            return False
        time.sleep(0.01)
    return True


def _list_members(session: int) -> list[int]:
    proc = Path("/proc")
    names = [entry.name for entry in proc.iterdir() if entry.name.isdigit()] if proc.is_dir() else []
    return [number for number in map(int, names) if _read_session(number) == session]


def _read_session(process: int) -> int | None:
    """Return the session of a process that still runs; None for a zombie."""
    try:
        state, _, _, session = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return None if state == "Z" else int(session)


@contextlib.contextmanager
def _handed_over(config: Config | None) -> Iterator[tuple[int, ...]]:
    """Yield the descriptor of an unnamed file with the configuration; nothing if there is no
    configuration.
    """
    if config is None:
        yield ()
        return
    descriptor = handed.make_nameless_file(handed.encode_config(config))
    try:
        yield (descriptor,)
    finally:
        os.close(descriptor)


def _build_problem(name: str, error: Exception) -> Problem:
    """Return the problem of the child `name` with a line of which `on_line` has failed."""
    return Problem(
        f"this agent cannot process what the {name} process reports ({type(error).__name__}: {error}), and "
        "has killed it",
        "nothing, if it goes on after a new start; otherwise report it with the traceback in the agent's log",
    )


class ChildProcess:
    """A running child.

    `on_line` receives its JSON lines on stdout; if it raises, it receives a line of kind "failed" with the
    reason, and the child is killed. `on_exit` is called once, after the last line, when all its processes
    have ended. `config` is passed to it (option `--handed`), so that it runs under this
    configuration whatever its file contains by now.
    """

    def __init__(
        self, name: str, command: ChildCommand, on_line: OnLine, on_exit: OnExit, config: Config | None = None
    ) -> None:
        self.name = name
        self._on_line = on_line
        self._on_exit = on_exit
        self._input: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with _handed_over(config) as descriptors:
            self._popen = subprocess.Popen(
                [*command, *(word for each in descriptors for word in ("--handed", str(each)))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if _needs_log_rendering() else None,
                start_new_session=True,
                pass_fds=descriptors,
                env=build_child_environment(),
            )
        self.pid = self._popen.pid
        self._ended = threading.Event()
        self._reader = self._start_thread("read", self._read_lines)
        self._start_thread("write", self._write_lines)
        self._start_thread("wait", self._await_end)
        if self._popen.stderr is not None:
            _follow_log(name, self._popen.stderr)
        _LOG.info("process started", child=name, child_pid=self.pid)

    def send_line(self, line: str) -> None:
        """Send the child a line. Never waits."""
        self._input.put(line.encode() + b"\n")

    def end_input(self) -> None:
        """Close its stdin after the lines sent so far, so that it ends."""
        self._input.put(None)

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._popen.terminate()

    def kill(self) -> None:
        end_session(self.pid)

    def measure_cpu_s(self) -> float:
        """Return the processor seconds that the child and its running descendants have used; 0 if it has
        ended.
        """
        used = 0.0
        with contextlib.suppress(psutil.Error):
            leader = psutil.Process(self.pid)
            for process in (leader, *leader.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = process.cpu_times()
                    used += times.user + times.system
        return used

    def wait_for_exit(self, seconds: float) -> bool:
        """Wait until `on_exit` is about to be called, and return whether that is so."""
        return self._ended.wait(seconds)

    def _start_thread(self, what: str, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"{what} {self.name}", daemon=True)
        thread.start()
        return thread

    def _write_lines(self) -> None:
        pipe = cast(IO[bytes], self._popen.stdin)
        with contextlib.suppress(OSError):
            while (data := self._input.get()) is not None:
                pipe.write(data)
                pipe.flush()
        with contextlib.suppress(OSError):
            pipe.close()

    def _read_lines(self) -> None:
        with cast(IO[bytes], self._popen.stdout) as lines:
            for raw in lines:
                fields = _parse_log_fields(raw)
                if fields is None:
                    _pass_line_on(raw)
                elif not self._process_line(fields):
                    return

    def _process_line(self, fields: dict[str, Any]) -> bool:
        """Pass a line to `on_line`. If that raises, kill the child, which would run on unheard. Returns
        whether the line was processed.
        """
        try:
            self._on_line(fields)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing that the child reports arrives
            _LOG.error("report of a process not processed", child=self.name, exc_info=error)
            with contextlib.suppress(Exception):  # it is logged above
                self._on_line({"kind": "failed", "error": encode_problem(_build_problem(self.name, error))})
            self.kill()
            return False
        return True

    def _await_end(self) -> None:
        code = self._popen.wait()
        end_session(self.pid)  # its children hold its stdout as well
        self._input.put(None)
        self._reader.join()
        self._ended.set()
        self._on_exit(code)
