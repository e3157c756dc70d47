"""`rowlock run`'s processes with children that only pretend: deaths, refusals, stops, and a kill -9 of the
run itself."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.kits.waiting import until

pytestmark = pytest.mark.timeout(1200)

ROOT = Path(__file__).resolve().parents[2]
#: Each child writes a line with its pid to a file of its name whenever it starts.
RUN = """
import sys
from pathlib import Path
from types import SimpleNamespace
from rowlock.processes import run, supervisor
from rowlock.processes.log import configure_logging
from schemas.backoff import Backoff
from schemas.config.changes.text import ConfigText

supervisor.CHILD_RESTART_BACKOFF = Backoff(first=0.05, longest=30.0, quiet=60.0)
supervisor.CHILD_STOP_TIMEOUT_S = 1.0
configure_logging()
folder = Path(sys.argv[1])
children = {}
for word in sys.argv[2:]:
    name, module = word.split(":")
    children[name] = [sys.executable, "-m", "rowlock.processes.child", module, str(folder / name)]
run.build_run_commands = lambda config, **_: children
text = ConfigText("config.yaml", "")
sys.exit(run.run_processes(SimpleNamespace(model_fields_set=set(), made_of=text, path=Path("config.yaml"))))
"""
START = """
import os, signal, subprocess, sys, time
from pathlib import Path
with Path(sys.argv[1]).open("a") as file:
    print(os.getpid(), file=file)
"""
KINDS = {
    "steady": START + "time.sleep(600)\n",
    "family": START
    + "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\ntime.sleep(600)\n",
    "stubborn": START
    + 'signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(\'{"kind": "status"}\')\ntime.sleep(600)\n',
    "polite": START + "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\ntime.sleep(600)\n",
    "refusing": START + "sys.exit('no binlog') if False else sys.exit(2)\n",
}


class Pretended:
    """A run over pretended children."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for kind, text in KINDS.items():
            (folder / f"{kind}.py").write_text(text)
        self.process: subprocess.Popen[str] | None = None

    def start(self, *children: str) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}", "ROWLOCK_LOG": "json"}
        with (self.folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN, str(self.folder), *children],
                env=env, stdin=subprocess.DEVNULL, stderr=log, text=True, cwd=self.folder,
            )  # fmt: skip
        return self.process

    def pids(self, name: str) -> list[int]:
        file = self.folder / name
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Await `condition`; a run that ended by a fault of its own is told at once, with its log."""
        assert self.process is not None

        def there() -> object:
            assert self.process is not None
            found = condition()
            assert found or self.process.poll() in (None, 0, 2), self.log()
            return found

        until(there, what, 240)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def family(self) -> list[psutil.Process]:
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pretended]:
    made = Pretended(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        family = made.family()
        made.process.kill()
        made.process.wait()
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()


def test_a_killed_child_is_started_again(pretended: Pretended) -> None:
    pretended.start("c:polite", "a:polite")
    for times in (1, 2, 3):
        pretended.until(lambda times=times: len(pretended.pids("c")) == times, f"start number {times}")
        os.kill(pretended.pids("c")[-1], signal.SIGKILL)
    pretended.until(lambda: len(pretended.pids("c")) == 4, "the fourth start")
    assert len(pretended.pids("a")) == 1
    assert pretended.log().count("ended unexpectedly, will be restarted") == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_clean(pretended: Pretended, number: signal.Signals) -> None:
    process = pretended.start("c:polite", "a:polite")
    pretended.until(lambda: pretended.pids("c") and pretended.pids("a"), "both children")
    family = pretended.family()
    process.send_signal(number)
    assert process.wait(30) == 0
    assert psutil.wait_procs(family, timeout=60)[1] == []
    assert f'"reason": "{number.name}"' in pretended.log()


def test_a_child_that_does_not_stop_is_killed_with_its_family(pretended: Pretended) -> None:
    process = pretended.start("c:stubborn", "a:family")
    pretended.until(
        lambda: pretended.pids("c") and len(pretended.family()) == 3, "the children and a grandchild"
    )
    family = pretended.family()
    process.terminate()
    assert process.wait(30) == 0
    assert psutil.wait_procs(family, timeout=60)[1] == []
    assert "did not stop in time, killed" in pretended.log()


def test_a_refusal_ends_the_run_with_2_and_is_not_tried_again(pretended: Pretended) -> None:
    process = pretended.start("c:refusing", "a:polite")
    assert process.wait(30) == 2
    assert len(pretended.pids("c")) == 1
    assert len(pretended.pids("a")) <= 1
    assert "refused to run and is not restarted" in pretended.log()


@pytest.mark.parametrize("kind", ["polite", "family"])
def test_kill_9_of_the_run_leaves_nothing(pretended: Pretended, kind: str) -> None:
    process = pretended.start(f"c:{kind}", f"a:{kind}")
    pretended.until(lambda: len(pretended.family()) == (2 if kind == "polite" else 4), "the whole family")
    family = pretended.family()
    process.kill()
    process.wait(10)
    assert psutil.wait_procs(family, timeout=120)[1] == []
