"""Tries mutants in copies of the tree, one at a time in each, and runs their tests there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
PRODUCT = ("schemas", "producer", "consumer", "coordinator", "rowlock", "deploy")
LIMIT_S = 120
TIMES = 10
"""A mutant whose tests do not end is found after LIMIT_S, or TIMES what all tests take without it."""
_LEFT_OUT = shutil.ignore_patterns(
    ".git",
    ".venv",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "*.egg-info",
    "build",
    "dist",
    "state",
    "artifacts",
)
"""What git ignores, and git's own files; a test may read everything else."""
_OPTIONS = ("-q", "-x", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "")
_SHOWN_LINES = 15
FIRST = 5
"""So many tests or files run before the others: they find most mutants, and pytest imports less for them."""
LATE = "did not end within"


class Copy:
    """A copy of the tree. Python takes the product from it, whichever one is installed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "PYTHONPATH": str(folder)}
        self._times = count(1_000_000_000)
        shutil.copytree(ROOT, folder, ignore=_LEFT_OUT)

    def tests(self, tests: Iterable[str], limit_s: float | None = None) -> tuple[int, str]:
        """Run tests; return pytest's exit code (1: one failed, or they took too long) and its last lines."""
        try:
            done = self._python("-m", "pytest", *_OPTIONS, *tests, limit_s=limit_s)
        except subprocess.TimeoutExpired:
            return 1, f"{LATE} {limit_s:.0f} s"
        return done.returncode, "\n".join((done.stdout + done.stderr).splitlines()[-_SHOWN_LINES:])

    def check(self) -> None:
        """Raise RuntimeError if Python takes the product from elsewhere: every mutant would survive."""
        found = self._python("-c", "import producer; print(producer.__file__)").stdout.strip()
        if not Path(found).is_relative_to(self._folder):
            raise RuntimeError(f"tests in a copy of the tree would run with the product at {found}")

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Have the mutant in this copy. Raises ValueError unless its text occurs once in its file."""
        file = self._folder / mutant.file
        was = file.read_text()
        if was.count(mutant.old) != 1:
            raise ValueError(f"{mutant.name}: its text occurs {was.count(mutant.old)} times in the file")
        self._write(file, was.replace(mutant.old, mutant.new))
        try:
            yield
        finally:
            self._write(file, was)

    def _write(self, file: Path, text: str) -> None:
        """Write a source with a new time: by time and size Python knows whether its bytecode is current."""
        file.write_text(text)
        at = next(self._times)
        os.utime(file, (at, at))

    def _python(self, *arguments: str, limit_s: float | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=self._folder, env=self._environment, capture_output=True,
            text=True, timeout=limit_s, check=False,
        )  # fmt: skip


@dataclass(frozen=True)
class Result:
    """A mutant and how its tests ended."""

    mutant: Mutant
    code: int
    """pytest's exit code."""
    said: str
    """pytest's last lines."""

    @property
    def verdict(self) -> Literal["found", "survived", "error"]:
        """ "error" if the tests could not run, for example because the mutant cannot be imported."""
        if self.code == 0:
            return "survived"
        return "found" if self.code == 1 else "error"

    @property
    def late(self) -> str:
        """A remark on a mutant whose tests did not end, which a loaded machine may also cause."""
        return f" ({self.said})" if self.said.startswith(LATE) else ""


def _try_mutant(copy: Copy, mutant: Mutant, limit_s: float) -> Result:
    """Run the tests of a mutant that is in `copy`."""
    code, said = copy.tests(mutant.tests[:FIRST], limit_s)
    if code == 0 and (rest := mutant.tests[FIRST:]):
        code, said = copy.tests(rest, limit_s)
    return Result(mutant, code, said)


def run(mutants: list[Mutant], workers: int, times: float = TIMES) -> Iterator[Result]:
    """Yield the result of each mutant, in order.

    `workers` of them are tried at the same time. `times`: see TIMES.

    Raises ValueError if their tests fail without any mutant.
    """
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(workers) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(workers):
            copies.put(Copy(Path(folder, str(number))))
        sound = copies.get()
        sound.check()
        began = time.monotonic()
        code, said = sound.tests(sorted({test for mutant in mutants for test in mutant.tests}))
        # A loaded machine is slow, which must not count as found.
        limit_s = max(LIMIT_S, times * (time.monotonic() - began))
        copies.put(sound)
        if code:
            raise ValueError(f"the tests fail without any mutant:\n{said}")

        def try_one(mutant: Mutant) -> Result:
            copy = copies.get()
            try:
                with copy.mutated(mutant):
                    return _try_mutant(copy, mutant, limit_s)
            finally:
                copies.put(copy)

        yield from pool.map(try_one, mutants)
