"""The folder of an embedded service, with its data, its log and its other files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.errors import build_closed_error
from deploy.guard.processes import unregister_folder


class ServiceHome:
    """A folder that is `given` and stays, or that `made` creates at its first use and `close` removes.

    `log_elsewhere`: the log file, if it is not in the folder.
    """

    def __init__(
        self, kind: str, given: Path | None, made: Callable[[], Path], log_elsewhere: Path | None = None
    ) -> None:
        self.given = given
        self.log_elsewhere = log_elsewhere
        self._kind = kind
        self._made = made
        self._folder: Path | None = None
        self._closed = False

    @property
    def folder(self) -> Path:
        """The folder. Raises EmbeddedError if it is closed."""
        if self._folder is None:
            if self._closed:
                raise build_closed_error(self._kind)
            self._folder = self._made() if self.given is None else _find_existing_parent(self.given)
        return self._folder

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.log_elsewhere or self.folder / "server.log"

    @contextmanager
    def data_made_whole(self) -> Iterator[None]:
        """Remove the data if creating it fails in the block: incomplete data would be taken for
        complete at the next start.
        """
        try:
            yield
        except BaseException:
            shutil.rmtree(self.data, ignore_errors=True)
            raise

    def close(self) -> None:
        """Remove the folder, unless it was given."""
        self._closed = True
        if self._folder is not None and self.given is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            unregister_folder(self._folder)
            self._folder = None


def _find_existing_parent(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()
