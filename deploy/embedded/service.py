"""The base of all embedded services: one process, one folder, one port on the loopback interface."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NoReturn, Self

import psutil

from deploy.embedded.errors import EmbeddedError
from deploy.embedded.fetch.cache import MB, require_space
from deploy.embedded.guard.guardian import kill_tree
from deploy.embedded.guard.processes import kept, release, spawn, temporary
from deploy.embedded.patience import Patience
from deploy.embedded.ports import HOST, pick, require_free


class Service:
    """A server process. `start` and `stop` keep port and data, `close` removes a temporary home.

    `home` is where data and log live: a temporary folder unless one is given. `extra` are options for the server's
    own command line (for Kafka: `key=value` settings); they win over ours.
    """

    kind: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    ready_within: ClassVar[float] = 90.0
    stop_within: ClassVar[float] = 30.0
    host = HOST

    def __init__(
        self,
        *,
        port: int | None = None,
        home: Path | None = None,
        extra: Sequence[str] = (),
        min_free: int = 512 * MB,
    ) -> None:
        self.port = port or pick()
        self.extra = list(extra)
        self._given_home = home
        self._home: Path | None = None
        self._min_free = min_free
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._gate = threading.Lock()  # between a start in one thread and a close in another

    # --- to be filled in by each service

    @classmethod
    def fetch(cls) -> None:
        """Downloads what is missing; start does so, too."""

    @classmethod
    def version(cls) -> str:
        """The version, without a download or a start; empty when it is not known yet."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Creates the data directory; called once, and not when it is there already."""
        raise NotImplementedError

    def _command(self) -> list[str | Path]:
        raise NotImplementedError

    def _probe(self) -> None:
        """Raises as long as the service cannot be used."""
        raise NotImplementedError

    # --- places

    @property
    def home(self) -> Path:
        if self._home is None:
            self._require_open()
            self._home = self._make_home()
        return self._home

    def _make_home(self) -> Path:
        if self._given_home is None:
            return temporary(f"rowlock-{self.kind.lower()}-")
        self._given_home.mkdir(parents=True, exist_ok=True)
        return self._given_home.absolute()

    @property
    def data_dir(self) -> Path:
        return self.home / "data"

    @property
    def log_file(self) -> Path:
        return self.home / "server.log"

    # --- life

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise EmbeddedError(self.kind, "it is not running", "call start() first")
        return self._process.pid

    def start(self) -> Self:
        """Returns when the service answers."""
        if self.running:
            return self
        _require_linux()
        self.kill()  # nothing but book-keeping: it may have ended by itself
        self.fetch()
        require_space(self.home, self._min_free, f"{self.kind}'s data")
        require_free(self.port, self.kind)
        if not self.data_dir.exists():
            self._prepare_whole()
        with self._gate:
            self._require_open()
            self._process = self._spawn(self._command())
        self._wait_ready(self._process)
        return self

    def stop(self) -> None:
        """Asks the service to end, and insists when it does not."""
        process = self._process
        if process is None:
            return
        self.resume()
        process.send_signal(self.stop_signal)
        _in_time(process, self.stop_within)
        self.kill()

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def kill(self) -> None:
        """As kill -9 or a crash; the data stays as it is."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def pause(self) -> None:
        """Stops every process of the service in its tracks: to others it looks like a hung machine."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Stops the service and removes its temporary home."""
        with self._gate:
            self._closed = True
        self.stop()
        if self._home is not None and self._given_home is None:
            shutil.rmtree(self._home, ignore_errors=True)
            kept(self._home)
            self._home = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- processes

    def _spawn(self, command: Sequence[str | Path], unprivileged: bool = False) -> subprocess.Popen[bytes]:
        with self.log_file.open("ab") as log:
            return spawn(
                command, output=log, env=self._environment(), cwd=self.home, unprivileged=unprivileged
            )

    def _prepare_whole(self) -> None:
        """A half-made data directory would be taken for a whole one at the next start."""
        try:
            self._prepare()
        except BaseException:
            shutil.rmtree(self.data_dir, ignore_errors=True)
            raise

    def _environment(self) -> dict[str, str]:
        return {"TZ": "UTC", "LC_ALL": "C.UTF-8"}

    def _require_open(self) -> None:
        if self._closed:
            raise EmbeddedError(self.kind, "it has been closed", "make a new one")

    def _run(self, command: Sequence[str | Path]) -> None:
        """A command that prepares the service, to its end."""
        process = self._spawn(command)
        try:
            ended = _in_time(process, self.ready_within)
        finally:
            _end(process)
        if not ended:
            raise self._failure(f"`{Path(command[0]).name}` did not end within {self.ready_within:.0f} s")
        if process.returncode != 0:
            raise self._failure(f"`{Path(command[0]).name}` ended with code {process.returncode}")

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        patience = Patience(self.ready_within)
        while (reason := self._unready()) is not None:
            if _ended(process, 0.05):
                self._give_up(f"it ended with code {process.returncode} while starting")
            if patience.over():
                self._give_up(f"no answer on port {self.port} within {patience.waited:.0f} s ({reason})")

    def _unready(self) -> str | None:
        try:
            self._probe()
        except Exception as error:  # noqa: BLE001 - each driver has exceptions of its own for "not yet"
            return str(error) or type(error).__name__
        return None

    def _give_up(self, seen: str) -> NoReturn:
        failure = self._failure(seen)
        self.kill()
        raise failure

    def _failure(self, seen: str) -> EmbeddedError:
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        # What went wrong is often said long before the end (mariadb-install-db ends with advice).
        errors = [line for line in lines[:-12] if "error" in line.lower()][-6:]
        tail = "".join(f"\n    {line}" for line in (*errors, *lines[-12:]))
        whole = f" (whole log: {self.log_file})" if self._given_home else ""
        remedy = f"the log's last lines above name the cause{whole}; remove it and start again"
        return EmbeddedError(self.kind, f"{seen}; its log ends:{tail}", remedy)

    def _signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(process.pid)
            for each in [top, *top.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.send_signal(number)


def _ended(process: subprocess.Popen[bytes], within: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=within)
    return process.returncode is not None


def _in_time(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Tell whether it ends within `seconds` of a machine with time to spare."""
    patience = Patience(seconds)
    while not _ended(process, 0.2):
        if patience.over():
            return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills what still runs, waits for it and takes it off the guardian's list."""
    if process.poll() is None:
        kill_tree(process.pid)
    process.wait()
    release(process)


def _require_linux() -> None:
    if sys.platform != "linux":
        raise EmbeddedError("this machine", f"it runs {sys.platform}", "the embedded services need Linux")


def as_root() -> bool:
    return os.geteuid() == 0
