"""Records which functions of the product each test calls, and keeps that outside of the repository."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.mutants.generated import PACKAGES, ROOT
from tests.mutants.generated.session import is_left_out

CallName = str
"""`file function`, dotted and without `<locals>`: the outermost function that holds the called code."""


@dataclass
class Traced:
    """What one test did, traced."""

    seconds: float
    calls: list[int]
    """The functions that it called, as indexes into `Trace.functions`."""


@dataclass
class Trace:
    """What all tests did without a mutant."""

    functions: list[CallName] = field(default_factory=list)
    tests: dict[str, Traced] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """Tests that fail or skip without a mutant in such a session: they judge nothing."""

    @property
    def usual_s(self) -> dict[str, float]:
        """Seconds that each test takes."""
        return {name: test.seconds for name, test in self.tests.items()}


def cache_path() -> Path:
    """Return where the trace of this tree is stored: another source has another path."""
    digest = hashlib.sha256(sys.version.encode())
    for folder in (*PACKAGES, "deploy", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not path.is_relative_to(ROOT / "tests" / "mutants") and not is_left_out(path.stem):
                digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "rowlock", "mutants")
    return cache / f"trace-{digest.hexdigest()[:16]}.json"


def read_trace(path: Path) -> Trace:
    """Return a stored trace."""
    stored: dict[str, Any] = json.loads(path.read_text())
    tests = {name: Traced(**test) for name, test in stored.pop("tests").items()}
    return Trace(**stored, tests=tests)


def write_trace(path: Path, trace: Trace) -> None:
    """Store a trace, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(asdict(trace)))
    beside.replace(path)


class Tracer:
    """Records the code objects that run, in all threads that begin while it does."""

    def __init__(self) -> None:
        self._seen: dict[int, CodeType] = {}
        # By their identity: to hash a code object takes longer than to call it.

    def start(self) -> None:
        """Begin to record."""
        self._seen = {}
        threading.settrace(self._note)
        sys.settrace(self._note)

    def stop(self) -> set[CallName]:
        """End recording; return the functions of the product that ran."""
        sys.settrace(None)
        threading.settrace(None)
        return set(_list_calls(list(self._seen.values())))

    def _note(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if id(code) not in self._seen:
            self._seen[id(code)] = code


def _list_calls(codes: Iterable[CodeType]) -> Iterator[CallName]:
    heads = tuple(f"{ROOT}/{package}/" for package in PACKAGES)
    for code in codes:
        if code.co_filename.startswith(heads):
            yield f"{code.co_filename.removeprefix(f'{ROOT}/')} {code.co_qualname.partition('.<locals>')[0]}"


class _Outcome:
    """A pytest plugin: whether a part of the current test failed, or the test was skipped."""

    def __init__(self) -> None:
        self.is_bad = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.is_bad |= not report.passed


def trace_tests(
    items: list[pytest.Item], run_in_fork: Callable[[Callable[[Path], None]], dict[str, Any]]
) -> Trace:
    """Run each module's tests in a fork, traced.

    `run_in_fork`: passes the path of a file to write to, and returns its contents.
    """
    trace = Trace()
    numbers: dict[CallName, int] = {}
    for module, group in groupby(items, key=lambda item: item.path):
        tests = list(group)
        began = time.monotonic()
        found = run_in_fork(lambda path, tests=tests: _trace_module(tests, path))  # type: ignore[misc]
        for name, (seconds, calls, is_bad) in found.items():
            if is_bad:
                trace.failed.append(name)
            else:
                called = sorted(numbers.setdefault(call, len(numbers)) for call in calls)
                trace.tests[name] = Traced(seconds, called)
        trace.failed.extend(item.nodeid for item in tests if item.nodeid not in found)
        print(f"traced {module.name}: {len(found)} tests in {time.monotonic() - began:.1f} s", flush=True)
    trace.functions = list(numbers)
    return trace


def _trace_module(items: list[pytest.Item], path: Path) -> None:
    """Run tests and write what each did, one line after each, for a test may end the process."""
    outcome, tracer = _Outcome(), Tracer()
    items[0].config.pluginmanager.register(outcome)
    with path.open("w") as file:
        for item, following in zip(items, [*items[1:], None], strict=True):
            outcome.is_bad = False
            began = time.perf_counter()
            tracer.start()
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            calls = tracer.stop()
            seconds = round(time.perf_counter() - began, 4)
            file.write(json.dumps([item.nodeid, [seconds, sorted(calls), outcome.is_bad]]) + "\n")
            file.flush()
