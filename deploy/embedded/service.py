"""The base of all embedded services: one process, one folder, one port on the loopback interface."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from deploy.embedded.home import ServiceHome
from deploy.embedded.ports import HOST, pick_port, require_free
from deploy.embedded.server_process import ServerCommand, ServerProcess
from deploy.errors import EmbeddedError
from deploy.fetch.cache import MB, require_space
from deploy.guard.processes import make_temporary_folder

_T = TypeVar("_T")
_DEADLOCK_TRIES = 20


class Service:
    """A server. `start` and `stop` keep port and data, `close` removes a temporary home.

    `home` is the folder of data and log: a temporary folder unless one is given. `process` is the
    running server. `extra` are options for the server's own command line (for Kafka: `key=value`
    settings); they override ours.
    """

    kind: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    ready_within: ClassVar[float] = 90.0
    stop_within: ClassVar[float] = 30.0
    refuses_root: ClassVar[bool] = False
    host = HOST

    def __init__(
        self,
        *,
        port: int | None = None,
        home: Path | None = None,
        extra: Sequence[str] = (),
        min_free: int = 512 * MB,
        log: Path | None = None,
    ) -> None:
        """`log`: its log file, if that is not to be in its home."""
        self.port = port or pick_port()
        self.extra = list(extra)
        self.home = ServiceHome(self.kind, home, self._make_temporary_home, log)
        self.process = ServerProcess(self.kind, self.home, unprivileged=self.refuses_root and as_root())
        self._min_free = min_free
        self._report_step: Callable[[str], object] = lambda _: None

    # --- implemented by each service

    @classmethod
    def fetch(cls) -> None:
        """Download what is missing; `start` does so, too."""

    @classmethod
    def read_version(cls) -> str:
        """Return the version without a download or a start; empty if it is not known yet."""
        raise NotImplementedError

    def _make_temporary_home(self) -> Path:
        return make_temporary_folder(f"rowlock-{self.kind.lower()}-")

    def _prepare_data(self) -> ServerCommand | None:
        """Create the data directory, or return the command that does; not called if the directory exists."""
        raise NotImplementedError

    def _build_command(self) -> ServerCommand:
        raise NotImplementedError

    def _probe_server(self) -> None:
        """Raise an exception as long as the service cannot be used."""
        raise NotImplementedError

    # --- life

    @property
    def running(self) -> bool:
        return self.process.running

    def report_steps(self, report: Callable[[str], object]) -> None:
        """Give `report` a line about each step of a start from now on."""
        self._report_step = report

    def start(self) -> Self:
        """Start the service and return when it answers."""
        if self.running:
            return self
        _require_linux()
        self.kill()  # clears the state of a process that has ended by itself
        self.fetch()
        require_space(self.home.folder, self._min_free, f"{self.kind}'s data")
        require_free(self.port, self.kind)
        if not self.home.data.exists():
            self._report_step(f"{self.kind}: creating its data in {self.home.folder}")
            with self.home.data_made_whole():
                if (command := self._prepare_data()) is not None:
                    self.process.run_command(command, self.ready_within)
        began = time.monotonic()
        self.process.start(self._build_command())
        self._report_step(f"{self.kind}: starting at port {self.port}, log: {self.home.log}")
        self.process.await_answer(self._probe_server, self.port, self.ready_within)
        self._report_step(f"{self.kind}: answers at port {self.port} after {time.monotonic() - began:.0f} s")
        return self

    def stop(self) -> None:
        """Ask the service to end, and kill it if it does not."""
        self.process.stop(self.stop_signal, self.stop_within)

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def kill(self) -> None:
        """Kill the service, like kill -9 or a crash; the data stays as it is."""
        self.process.kill()

    def close(self) -> None:
        """Stop the service and remove its temporary home."""
        self.process.close()
        self.stop()
        self.home.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_linux() -> None:
    if sys.platform != "linux":
        raise EmbeddedError("this machine", f"it runs {sys.platform}", "the embedded services need Linux")


def as_root() -> bool:
    return os.geteuid() == 0


def retry_deadlocks(run: Callable[[], _T], is_deadlock: Callable[[Exception], bool]) -> _T:
    """Return what `run` returns, and run it again if it lost a deadlock: the server has rolled it back then.

    Raises the error of the last try.
    """
    for _ in range(_DEADLOCK_TRIES - 1):
        try:
            return run()
        except Exception as error:
            if not is_deadlock(error):
                raise
    return run()
