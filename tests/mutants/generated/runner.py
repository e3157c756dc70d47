"""Judges mutants, one process at a time.

The main process has imported the libraries and nothing of the product: its forks import the product with a
mutant, for code that runs at import. One of its forks, the session, imports the product as it is and collects
all tests: its forks exchange the code of functions.
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.mutants.generated import PACKAGES, ROOT
from tests.mutants.generated.choice import Budget, Choice
from tests.mutants.generated.exchange import LiveFunctions, MutatedImport, NoSuchFunctionError
from tests.mutants.generated.forks import Report, judge_in_fork
from tests.mutants.generated.places import Place
from tests.mutants.generated.sample import Judged
from tests.mutants.generated.session import Collecting, collect, list_modules, run_until_failure
from tests.mutants.generated.tracing import CallName, Trace, Tracer, read_trace, trace_tests, write_trace

MODULE_S = 90.0
"""A traced module is given ten times as long, in seconds."""
AGAIN = "again"
"""The session's answer where only a new import can judge: code runs at import, or its variables differ."""


class Runner:
    """Judges mutants by the tests of `modules`; without these, by all unit tests and the simulations."""

    def __init__(self, budget: Budget, modules: Iterable[str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="generated-mutants-")
        self._basetemp = Path(self._folder.name, "tests")
        self._budget = budget
        self._modules = list_modules() if modules is None else list(modules)
        self._usual_s: dict[str, float] = {}

    def load_trace(self, path: Path) -> Trace:
        """Return which test calls what: from `path` if it exists, else by a run of all tests (20 minutes)."""
        if not path.exists():
            self._in_session(lambda items, _: write_trace(path, trace_tests(items, self._run_in_fork)))
        trace = read_trace(path)
        self._usual_s = trace.usual_s
        return trace

    def _run_in_fork(self, work: Callable[[Path], None]) -> dict[str, Any]:
        """Run `work`, which writes lines of [name, value] to a file, in a fork; return what it wrote."""
        path = Path(self._folder.name, "traced")
        path.unlink(missing_ok=True)

        def write(report: Report) -> None:
            report.begin("module")
            work(path)
            report.end("survived")

        judge_in_fork(write, {"module": MODULE_S})
        return dict(map(json.loads, path.read_text().splitlines())) if path.exists() else {}

    def judge_by_more(
        self, places: Iterable[Place], trace: Path, usual: Budget
    ) -> Iterator[tuple[Place, Judged]]:
        """Yield the verdicts of survivors by the tests that a smaller budget left out, if there are any."""
        loaded = self.load_trace(trace)
        more, before = (Choice(ROOT, PACKAGES, loaded, each) for each in (self._budget, usual))
        plan = {place: more.choose_beyond(place, before) for place in places}
        yield from self.judge_by({place: tests for place, tests in plan.items() if tests})

    def judge(self, places: Iterable[Place], trace: Path) -> Iterator[tuple[Place, Judged]]:
        """Yield each mutant and its verdict, as they come, by tests that a trace says call its function."""
        choice = Choice(ROOT, PACKAGES, self.load_trace(trace), self._budget)
        plan = {place: choice.choose(place) for place in places}
        yield from ((place, Judged("unreached")) for place, tests in plan.items() if not tests)
        yield from self.judge_by({place: tests for place, tests in plan.items() if tests})

    def judge_by(self, plan: dict[Place, list[str]]) -> Iterator[tuple[Place, Judged]]:
        """Judge each mutant by its given tests."""
        in_session = [place for place in plan if place.function is not None]
        anew = [place for place in plan if place.function is None]
        for place, judged in self._judge_in_session({place: plan[place] for place in in_session}):
            if judged.how == AGAIN:
                anew.append(place)
            else:
                yield place, judged
        for place in anew:
            yield place, self._judge_anew(place, plan[place])

    def _judge_anew(self, place: Place, tests: list[str]) -> Judged:
        """Judge a mutant in a process that imports the product with it."""
        source = place.mutate((ROOT / place.key.file).read_text())

        def fail(report: Report) -> NoReturn:
            report.end("error", how="a test module cannot be imported")

        def work(report: Report) -> None:
            MutatedImport(ROOT, place.key.file, source).install()

            def run(items: list[pytest.Item]) -> None:
                run_until_failure(_pick(items, tests), report)

            modules = dict.fromkeys(test.partition("::")[0] for test in tests)
            collect(modules, self._basetemp, [Collecting(run, lambda: fail(report))])
            fail(report)

        return judge_in_fork(work, self._usual_s)

    def _judge_in_session(self, plan: dict[Place, list[str]]) -> Iterator[tuple[Place, Judged]]:
        """Yield verdicts of mutants in functions; AGAIN where only a new import can tell."""
        if not plan:
            return
        places = list(plan)
        reading, writing = os.pipe()

        def judge_all(items: list[pytest.Item], at_import: set[CallName]) -> None:
            live = LiveFunctions(ROOT, PACKAGES)
            gc.freeze()
            with os.fdopen(writing, "w") as out:
                for number, place in enumerate(places):
                    judged = self._exchange_and_judge(place, _pick(items, plan[place]), live)
                    if judged.verdict == "survived" and place.call in at_import:
                        judged = Judged("survived", how=AGAIN)
                    out.write(json.dumps([number, *judged]) + "\n")
                    out.flush()

        session = self._fork_session(judge_all)
        os.close(writing)
        try:
            with os.fdopen(reading) as verdicts:
                for line in verdicts:
                    number, *judged = json.loads(line)
                    yield places[number], Judged(*judged)
        finally:
            os.waitpid(session, 0)

    def _exchange_and_judge(self, place: Place, items: list[pytest.Item], live: LiveFunctions) -> Judged:
        """Judge a mutant in a fork of the session, which is this process."""
        function = place.function
        assert function is not None
        source = place.mutate_in_place((ROOT / place.key.file).read_text())

        def work(report: Report) -> None:
            try:
                live.exchange(function, source)
            except NoSuchFunctionError:
                report.end("error", how=AGAIN)
            except SyntaxError:
                report.end("error", how="it cannot be compiled")
            run_until_failure(items, report)

        return judge_in_fork(work, self._usual_s)

    def _in_session(self, use: Callable[[list[pytest.Item], set[CallName]], None]) -> None:
        os.waitpid(self._fork_session(use), 0)

    def _fork_session(self, use: Callable[[list[pytest.Item], set[CallName]], None]) -> int:
        """Fork a process that collects all tests; return its id.

        `use` gets the tests and the functions called at import.
        """
        child = os.fork()
        if child:
            return child
        try:
            tracer = Tracer()
            tracer.start()
            collecting = Collecting(lambda items: use(items, tracer.stop()), _stop_without_tests)
            os._exit(collect(self._modules, self._basetemp, [collecting]))
        finally:
            traceback.print_exc()
            os._exit(1)


def _stop_without_tests() -> NoReturn:
    raise pytest.UsageError("a test module cannot be imported")


def _pick(items: Iterable[pytest.Item], tests: Iterable[str]) -> list[pytest.Item]:
    """Return the named tests, in the order of the names, without those that are not there."""
    by_name = {item.nodeid: item for item in items}
    return [by_name[test] for test in tests if test in by_name]
