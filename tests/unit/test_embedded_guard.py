"""The guardian, with real processes: nothing outlives its parent, whatever ended it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.embedded import mysql
from deploy.embedded.ports import HOST, pick_port, require_free
from deploy.errors import EmbeddedError
from deploy.guard import guardian

ROOT = Path(__file__).parents[2]

# Starts a process that itself starts one in a session of its own, and a temporary folder; prints their names;
# waits.
PARENT = """
import json, os, subprocess, sys, time
from deploy.guard.processes import make_temporary_folder, spawn_process
folder = make_temporary_folder("rowlock-test-")
(folder / "data").mkdir()
inner = "import subprocess,time; p=subprocess.Popen(['sleep','600'],start_new_session=True); print(p.pid, flush=True); p.wait()"
child = spawn_process([sys.executable, "-S", "-c", inner], output=subprocess.PIPE)
pids = [child.pid, int(child.stdout.readline())]
"""  # noqa: E501
FORK = "if os.fork() == 0: time.sleep(600)\n"
TELL = 'print(json.dumps({"pids": pids, "folder": str(folder)}), flush=True)\n'
WAIT = "sys.stdin.read()\n"


class Parent:
    """The parent process, and handles on all that it started; it lives until its input ends, or it is
    killed."""

    def __init__(self, *lines: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", "".join((PARENT, *lines))],
            cwd=ROOT,
            stdin=pipe,
            stdout=pipe,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        try:
            notified = json.loads(self.process.stdout.readline())
            self.folder = Path(notified["folder"])
            self.handles = [os.pidfd_open(pid) for pid in notified["pids"]]
        except BaseException:
            self.finish()
            raise

    def assert_all_gone(self) -> None:
        for handle in self.handles:
            assert select.select([handle], [], [], 20)[0], "a child outlived its parent"
            os.close(handle)
        ends = select.poll()  # the folder goes right after the processes
        for _ in range(200):
            if not self.folder.exists():
                return
            ends.poll(50)
        pytest.fail(f"{self.folder} is still there")

    def finish(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_all_ends_when_the_parent_is_ended(number: signal.Signals) -> None:
    parent = Parent(TELL, WAIT)
    parent.process.send_signal(number)
    parent.process.communicate()
    parent.assert_all_gone()


def test_all_ends_with_an_ordinary_exit() -> None:
    parent = Parent(TELL, WAIT)
    parent.process.communicate()
    assert parent.process.returncode == 0
    assert not parent.folder.exists(), "an ordinary exit waits for the guardian"
    parent.assert_all_gone()


def test_a_forked_child_does_not_hide_the_parents_end() -> None:
    parent = Parent(FORK, TELL, WAIT)
    parent.process.kill()
    parent.process.wait()
    parent.assert_all_gone()
    parent.finish()


def test_ctrl_c_on_the_terminal_does_not_reach_the_guardian() -> None:
    """Ctrl-C goes to the whole foreground group: the guardian, in a session of its own, still cleans up."""
    parent = Parent(TELL, WAIT)
    os.killpg(parent.process.pid, signal.SIGINT)
    parent.process.communicate()
    parent.assert_all_gone()


def test_another_process_under_a_recycled_number_is_spared() -> None:
    """The guardian is told of a process with a start time; the number alone is not enough to kill."""
    assert guardian.read_start_time(os.getpid()) == guardian.read_start_time(os.getpid())
    with subprocess.Popen(["sleep", "600"]) as other:
        assert guardian.read_start_time(other.pid) != guardian.read_start_time(1)
        other.kill()
    assert guardian.read_start_time(other.pid) is None


def test_kill_tree_returns_when_all_are_gone() -> None:
    inner = (
        "import subprocess; p=subprocess.Popen(['sleep','600'],start_new_session=True); "
        "print(p.pid,flush=True); p.wait()"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", inner], stdout=subprocess.PIPE) as top:
        assert top.stdout is not None
        below = os.pidfd_open(int(top.stdout.readline()))
        guardian.kill_tree(top.pid)
        assert select.select([below], [], [], 0)[0]
        os.close(below)


def test_a_line_that_is_no_registration_does_not_end_the_guardian(tmp_path: Path) -> None:
    """It died of `+p` without a number, and left everything that was registered."""
    folder = tmp_path / "left"
    folder.mkdir()
    with subprocess.Popen(["sleep", "600"]) as service:
        lines = f"+p\n-p\n+p x\n?\n+p {service.pid}\n+p 99999999999999999999\n+d {folder}\n+p \n"
        script = [sys.executable, "-I", "-S", str(guardian.__file__)]
        ended = subprocess.run(script, input=lines, capture_output=True, text=True, check=False)
        assert service.wait(20) == -signal.SIGKILL
    assert (ended.returncode, folder.exists()) == (0, False)
    assert ended.stderr.splitlines() == [
        f"guardian: ignored a line that is no registration: {line!r}"
        for line in ("+p", "-p", "+p x", "?", "+p ")
    ]


def test_a_taken_port_is_named() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(EmbeddedError, match=f"port {port} on {HOST}: another process listens") as caught:
            require_free(port, "Kafka")
    assert "a free one is picked" in caught.value.remedy


def test_picked_ports_differ_and_stay_clear_of_outgoing_connections() -> None:
    picked = [pick_port() for _ in range(50)]
    assert len(set(picked)) == 50
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(picked) < max(lowest_outgoing, 32000)


def test_mysql_says_why_it_cannot_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROWLOCK_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in (mysql.MySQL.explain_unavailable() or "")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "debootstrap" in (mysql.MySQL.explain_unavailable() or "")
    with pytest.raises(EmbeddedError, match="debootstrap"):
        mysql.MySQL.fetch()
