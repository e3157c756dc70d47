"""Lets mutants live in copies of the tree, one at a time in each, and runs their tests there."""

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
"""A mutant that keeps its tests from ending is found: after LIMIT_S, or as many TIMES what they take without it."""
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
"""What git ignores, and git's own: everything else a test may read."""
_OPTIONS = ("-q", "-x", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "")
_SAID = 15
FIRST = 5
LATE = "did not end within"


class Copy:
    """A copy of the tree. Whatever Python runs in it takes the product from it, whichever is installed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "PYTHONPATH": str(folder)}
        self._times = count(1_000_000_000)
        shutil.copytree(ROOT, folder, ignore=_LEFT_OUT)

    def tests(self, tests: Iterable[str], limit_s: float | None = None) -> tuple[int, str]:
        """Run tests; return pytest's exit code (1: one failed, or none ended in time) and the end of what it says."""
        try:
            done = self._python("-m", "pytest", *_OPTIONS, *tests, limit_s=limit_s)
        except subprocess.TimeoutExpired:
            return 1, f"{LATE} {limit_s:.0f} s"
        return done.returncode, "\n".join((done.stdout + done.stderr).splitlines()[-_SAID:])

    def check(self) -> None:
        """Raise RuntimeError where Python would take the product from elsewhere: every mutant would survive."""
        found = self._python("-c", "import producer; print(producer.__file__)").stdout.strip()
        if not Path(found).is_relative_to(self._folder):
            raise RuntimeError(f"tests in a copy of the tree would be of the product at {found}")

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Let `mutant` live here. Raises ValueError unless its text stands once in its file."""
        file = self._folder / mutant.file
        was = file.read_text()
        if was.count(mutant.old) != 1:
            raise ValueError(f"{mutant.name}: its text stands {was.count(mutant.old)} times in the file")
        self._write(file, was.replace(mutant.old, mutant.new))
        try:
            yield
        finally:
            self._write(file, was)

    def _write(self, file: Path, text: str) -> None:
        """Write a source with a time of its own: by that and its size Python knows whether its bytecode is still right."""
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
    """What became of a mutant. `code`: pytest's exit code; `said`: the end of its output."""

    mutant: Mutant
    code: int
    said: str

    @property
    def verdict(self) -> Literal["found", "survived", "error"]:
        """ "error": the tests could not be run, as where a mutant cannot even be imported."""
        if self.code == 0:
            return "survived"
        return "found" if self.code == 1 else "error"

    @property
    def late(self) -> str:
        """What to say of a mutant that only its tests' time found: whoever doubts the machine looks at that one again."""
        return f" ({self.said})" if self.said.startswith(LATE) else ""


def _looked_for(copy: Copy, mutant: Mutant, limit_s: float) -> Result:
    """Run the tests of a mutant that lives in `copy`, its first few before pytest imports many more: most are found by those."""
    code, said = copy.tests(mutant.tests[:FIRST], limit_s)
    if code == 0 and (rest := mutant.tests[FIRST:]):
        code, said = copy.tests(rest, limit_s)
    return Result(mutant, code, said)


def run(mutants: list[Mutant], workers: int, times: float = TIMES) -> Iterator[Result]:
    """Yield what becomes of each, in order; `workers` of them live at the same time. `times`: see TIMES.

    Raises ValueError when their tests fail without any of them.
    """
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(workers) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(workers):
            copies.put(Copy(Path(folder, str(number))))
        sound = copies.get()
        sound.check()
        began = time.monotonic()
        code, said = sound.tests(sorted({test for mutant in mutants for test in mutant.tests}))
        # A loaded machine is slow, and finds nothing.
        limit_s = max(LIMIT_S, times * (time.monotonic() - began))
        copies.put(sound)
        if code:
            raise ValueError(f"the tests fail without any mutant:\n{said}")

        def one(mutant: Mutant) -> Result:
            copy = copies.get()
            try:
                with copy.mutated(mutant):
                    return _looked_for(copy, mutant, limit_s)
            finally:
                copies.put(copy)

        yield from pool.map(one, mutants)
