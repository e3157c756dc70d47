"""The processes of an embedded service: the commands that prepare it, and the server with its children."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import psutil

from deploy.embedded.home import ServiceHome
from deploy.errors import EmbeddedError, build_closed_error
from deploy.guard.guardian import kill_tree
from deploy.guard.processes import release_process, spawn_process
from schemas.patience import AdaptiveTimeout

ServerCommand = Sequence[str | Path]


class ServerProcess:
    """The server of a service, which writes its log into `home`. Failures raise EmbeddedError with the
    end of that log.

    `environment`: variables in addition to this process's own; `unprivileged`: it runs as the user nobody
    instead of root.
    """

    def __init__(self, kind: str, home: ServiceHome, *, unprivileged: bool) -> None:
        self.environment = {"TZ": "UTC", "LC_ALL": "C.UTF-8"}
        self._kind = kind
        self._home = home
        self._unprivileged = unprivileged
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._gate = threading.Lock()  # between a start in one thread and a close in another

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise EmbeddedError(self._kind, "it is not running", "call start() first")
        return self._process.pid

    def run_command(self, command: ServerCommand, within: float) -> None:
        """Run a command that prepares the service, for `within` seconds at most."""
        process = self._spawn_command(command)
        try:
            ended = _has_ended_in_time(process, within)
        finally:
            _end_process(process)
        if not ended:
            raise self._build_error(f"`{Path(command[0]).name}` did not end within {within:.0f} s")
        if process.returncode != 0:
            raise self._build_error(f"`{Path(command[0]).name}` ended with code {process.returncode}")

    def start(self, command: ServerCommand) -> None:
        with self._gate:
            if self._closed:
                raise build_closed_error(self._kind)
            self._process = self._spawn_command(command)

    def await_answer(self, probe: Callable[[], None], port: int, within: float) -> None:
        """Return once `probe` succeeds. A server that does not answer in `within` seconds is killed."""
        process = self._process
        if process is None:
            raise build_closed_error(self._kind)
        patience = AdaptiveTimeout(within)
        while (reason := _find_probe_error(probe)) is not None:
            if _has_ended_within(process, 0.05):
                self._give_up(f"it ended with code {process.returncode} while starting")
            if patience.is_over():
                self._give_up(f"no answer on port {port} within {patience.waited:.0f} s ({reason})")

    def stop(self, number: signal.Signals, within: float) -> None:
        """Send a signal to end the server, and kill it if it does not end in `within` seconds."""
        process = self._process
        if process is None:
            return
        self.resume()
        process.send_signal(number)
        _has_ended_in_time(process, within)
        self.kill()

    def kill(self) -> None:
        """Kill the server, like kill -9 or a crash."""
        process, self._process = self._process, None
        if process is not None:
            _end_process(process)

    def close(self) -> None:
        """Prevent any later start; a running server continues."""
        with self._gate:
            self._closed = True

    def pause(self) -> None:
        """Stop every process of the service by SIGSTOP, which looks like a hung machine to others."""
        self._send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._send_signal(signal.SIGCONT)

    def _spawn_command(self, command: ServerCommand) -> subprocess.Popen[bytes]:
        home = self._home
        with home.log.open("ab") as log:
            return spawn_process(
                command, output=log, env=self.environment, cwd=home.folder, unprivileged=self._unprivileged
            )

    def _send_signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(process.pid)
            for each in [top, *top.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.send_signal(number)

    def _give_up(self, seen: str) -> NoReturn:
        failure = self._build_error(seen)
        self.kill()
        raise failure

    def _build_error(self, seen: str) -> EmbeddedError:
        log = self._home.log
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        # The cause is often logged long before the end (mariadb-install-db ends with advice).
        errors = [line for line in lines[:-12] if "error" in line.lower()][-6:]
        tail = "".join(f"\n    {line}" for line in (*errors, *lines[-12:]))
        whole = f" (whole log: {log})" if self._home.given else ""
        remedy = f"the log's last lines above name the cause{whole}; remove it and start again"
        return EmbeddedError(self._kind, f"{seen}; its log ends:{tail}", remedy)


def _find_probe_error(probe: Callable[[], None]) -> str | None:
    try:
        probe()
    except Exception as error:  # noqa: BLE001 - each driver has exceptions of its own for "not yet"
        return str(error) or type(error).__name__
    return None


def _has_ended_within(process: subprocess.Popen[bytes], within: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=within)
    return process.returncode is not None


def _has_ended_in_time(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Return whether the process ends within `seconds`, extended by the machine's load."""
    patience = AdaptiveTimeout(seconds)
    while not _has_ended_within(process, 0.2):
        if patience.is_over():
            return False
    return True


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Kill the process if it still runs, wait for it and remove it from the guardian's list."""
    if process.poll() is None:
        kill_tree(process.pid)
    process.wait()
    release_process(process)
