"""What all embedded services have in common: one process, one folder, one port on the loopback interface."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

import psutil

from deploy.embedded.cache import MB, require_space
from deploy.embedded.errors import EmbeddedError
from deploy.embedded.guard import kept, release, spawn, temporary
from deploy.embedded.guardian import kill_tree
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
            self._home = self._given_home or temporary(f"rowlock-{self.kind.lower()}-")
            self._home.mkdir(parents=True, exist_ok=True)
        return self._home

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
        self.fetch()
        require_space(self.home, self._min_free, f"{self.kind}'s data")
        require_free(self.port, self.kind)
        if not self.data_dir.exists():
            self._prepare_whole()
        self._process = self._spawn(self._command())
        self._wait_ready()
        return self

    def stop(self) -> None:
        """Asks the service to end, and insists when it does not."""
        if self._process is None:
            return
        self.resume()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(self.stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=self.stop_within)
        self.kill()

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def kill(self) -> None:
        """As kill -9 or a crash; the data stays as it is."""
        if self._process is None:
            return
        if self._process.poll() is None:
            kill_tree(self._process.pid)
        self._process.wait()
        release(self._process)
        self._process = None

    def pause(self) -> None:
        """Stops every process of the service in its tracks: to others it looks like a hung machine."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Stops the service and removes its temporary home."""
        self._closed = True
        self.stop()
        if self._home is not None and self._given_home is None:
            self._remove()
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

    def _remove(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)

    # --- processes

    def _spawn(self, command: Sequence[str | Path], unprivileged: bool = False) -> subprocess.Popen[bytes]:
        if self._closed:
            raise EmbeddedError(self.kind, "it was closed while it started", "make a new one")
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

    def _run(self, command: Sequence[str | Path]) -> None:
        """A command that prepares the service, to its end."""
        process = self._spawn(command)
        try:
            code = process.wait(timeout=120)
        except BaseException:
            kill_tree(process.pid)
            process.wait()
            raise
        finally:
            release(process)
        if code != 0:
            raise self._failure(f"`{Path(command[0]).name}` ended with code {code}")

    def _wait_ready(self) -> None:
        assert self._process is not None
        ends = time.monotonic() + self.ready_within
        while (reason := self._unready()) is not None:
            if self._ended(0.05):
                failure = self._failure(f"it ended with code {self._process.returncode} while starting")
                self.kill()
                raise failure
            if time.monotonic() > ends:
                failure = self._failure(
                    f"no answer on port {self.port} within {self.ready_within:.0f} s ({reason})"
                )
                self.kill()
                raise failure

    def _unready(self) -> str | None:
        try:
            self._probe()
        except Exception as error:  # noqa: BLE001 - each driver has exceptions of its own for "not yet"
            return str(error) or type(error).__name__
        return None

    def _ended(self, within: float) -> bool:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=within)
        return self._process.returncode is not None

    def _failure(self, seen: str) -> EmbeddedError:
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        tail = "".join(f"\n    {line}" for line in lines[-12:])
        remedy = (
            f"see the log's last lines above (whole log: {self.log_file}), remove the cause and start again"
        )
        return EmbeddedError(self.kind, f"{seen}; its log ends:{tail}", remedy)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(self._process.pid)
            for each in [top, *top.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.send_signal(number)


def as_root() -> bool:
    return os.geteuid() == 0
