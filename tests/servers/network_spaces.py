"""Machines of a network of their own, on this machine: network namespaces on a bridge.

Each machine is a process that only sleeps, in namespaces of network, mounts, processes and host name. Once
that process ends, the kernel ends every process of the machine and removes its interfaces. The guardian of
the test process kills it, so nothing remains of a test that was killed.

The bridge is in a namespace of its own for the same reason. This machine has one interface in it, with the
first address of the network: what listens on `Network.address` is reachable by all machines.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import psutil

from deploy.guard.guardian import kill_tree
from deploy.guard.processes import release_process, spawn_process

_TOOLS = ("ip", "tc", "unshare", "nsenter", "setpriv", "mount", "sysctl")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_DROP = 2  # TC_ACT_SHOT
_PASS = 0xFFFFFFFF  # TC_ACT_UNSPEC
_TABLE = "77"  # of routes to exposed ports
_chance = (
    random.SystemRandom()
)  # not the seeded one: two test runs with one seed would pick the same networks


def find_obstacle() -> str | None:
    """Return why machines of their own cannot be made here; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in _TOOLS if shutil.which(tool, path=_PATH) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def call(*words: str | int | Path) -> str:
    """Run a command and return its output. Raises RuntimeError with its last words if it fails."""
    done = subprocess.run(
        [*map(str, words)],
        env={"PATH": _PATH, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


class Space:
    """Namespaces of network, mounts, processes and host name. `setup`: shell commands that prepare its
    mounts; `pid`: of its first process, as this machine sees it."""

    def __init__(self, name: str, log: Path, setup: Sequence[str] = ()) -> None:
        # An ignored SIGCHLD survives exec: the kernel itself clears away ended children of the first process.
        script = "\n".join(
            ["set -e", f"hostname {name}", *setup, "ip link set lo up", "trap '' CHLD", "exec sleep infinity"]
        )
        kinds = ("--net", "--uts", "--ipc", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child")
        with log.open("ab") as output:
            self._holder = spawn_process(["unshare", *kinds, "sh", "-c", script], output=output)
        self.pid = 0
        try:
            self._await_start(log)
        except BaseException:
            self.close()
            raise

    def _await_start(self, log: Path) -> None:
        deadline = time.monotonic() + 60
        while self._holder.poll() is None and time.monotonic() < deadline:
            for child in psutil.Process(self._holder.pid).children():
                with contextlib.suppress(psutil.Error):
                    if child.cmdline()[:1] == ["sleep"]:
                        self.pid = child.pid
                        return
            time.sleep(0.02)
        raise RuntimeError(f"the namespaces were not made; see {log}")

    def enter(self, *words: str | int | Path, user: int | None = None) -> list[str]:
        """Return the command that runs `words` inside; `user`: as this user and group, without rights."""
        entry = ["nsenter", f"--target={self.pid}", "--net", "--uts", "--ipc", "--pid", "--mount"]
        if user is not None:
            entry += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"]
        return [*entry, *map(str, words)]

    def call(self, *words: str | int | Path, user: int | None = None) -> str:
        return call(*self.enter(*words, user=user))

    def processes(self) -> list[psutil.Process]:
        """Return all processes inside but the one that sleeps; numbers are those of this machine."""
        own = Path(f"/proc/{self.pid}/ns/pid").readlink() if self.pid else None
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.pid != self.pid and Path(f"/proc/{process.pid}/ns/pid").readlink() == own:
                    found.append(process)
        return found

    def close(self) -> None:
        """End everything inside, as if its power was cut."""
        if self._holder.poll() is None:
            kill_tree(self._holder.pid)
        self._holder.wait()
        release_process(self._holder)
        self.pid = 0


class Link:
    """The cable between a machine and the bridge: `interface` is its end at the bridge."""

    def __init__(self, bridge: Space, interface: str) -> None:
        self._bridge = bridge
        self._interface = interface
        bridge.call("tc", "qdisc", "add", "dev", interface, "clsact")

    def cut(
        self, ports: Iterable[int] = (), *, but: Iterable[int] = (), up: bool = True, down: bool = True
    ) -> None:
        """Make packets vanish silently, of connections now and later, until `heal`.

        `ports`: only TCP to and from these ports of the far side (this machine); `but`: all TCP except these.
        Neither: everything, as with a pulled cable. `up` is from the machine to the far side.
        """
        ports, but = list(ports), list(but)
        self.heal()
        for direction, place, is_cut in (("ingress", 2, up), ("egress", 0, down)):
            if is_cut:
                self._filter(
                    direction,
                    _build_filter(place, ports or but, _DROP if ports else _PASS, bool(ports or but)),
                )

    def heal(self) -> None:
        for direction in ("ingress", "egress"):
            self._bridge.call("tc", "filter", "del", "dev", self._interface, direction)

    def _filter(self, direction: str, program: Sequence[str]) -> None:
        code = ",".join([str(len(program)), *program])
        self._bridge.call(
            "tc", "filter", "add", "dev", self._interface, direction, "bpf", "da", "bytecode", code
        )


def _build_filter(place: int, ports: Sequence[int], action: int, selective: bool) -> list[str]:
    """Return a classic BPF program. `place`: offset of the port in TCP's header; `action`: what to do with
    these ports, the opposite is done with other TCP."""
    if not selective:
        return [f"6 0 0 {_DROP}"]
    count = len(ports)
    other = _PASS if action == _DROP else _DROP
    return [
        "40 0 0 12", f"21 0 {count + 6} 2048",  # IPv4, else the last line
        "48 0 0 23", f"21 0 {count + 4} 6",  # TCP, else the last line
        "177 0 0 14", f"72 0 0 {14 + place}",
        *(f"21 {count - index} 0 {port}" for index, port in enumerate(ports)),
        f"6 0 0 {other}", f"6 0 0 {action}", f"6 0 0 {_PASS}",
    ]  # fmt: skip


class Network:
    """A private network of machines, this one included, by `interface`; its address there is `address`."""

    def __init__(self, log: Path) -> None:
        self.bridge = Space("bridge", log)
        self._count = 0
        self._machines: list[Space] = []
        self._exposed: list[int] = []
        try:
            self.number = self._pick_number()
            self.interface = f"rowlock{self.number}"
            self.address = self.address_of(1)
            self._connect()
        except BaseException:
            self.close()
            raise

    def _pick_number(self) -> int:
        """Return a number that is free: interfaces have unique names, so a network belongs to one process."""
        for number in _chance.sample(range(1, 255), 254):
            if call("ip", "route", "show", f"10.77.{number}.0/24"):
                continue
            with contextlib.suppress(RuntimeError):
                cable = ("ip", "link", "add", f"rowlock{number}", "type", "veth")
                call(*cable, "peer", "name", "home", "netns", self.bridge.pid)
                return number
        raise RuntimeError("no free network in 10.77.0.0/16")

    def _connect(self) -> None:
        self.bridge.call("ip", "link", "add", "bridge", "type", "bridge")
        self.bridge.call("ip", "link", "set", "home", "master", "bridge", "up")
        self.bridge.call("ip", "link", "set", "bridge", "up")
        call("ip", "addr", "add", f"{self.address}/24", "dev", self.interface)
        call("ip", "link", "set", self.interface, "up")
        call("sysctl", "-qw", f"net.ipv4.conf.{self.interface}.route_localnet=1")

    def address_of(self, place: int) -> str:
        return f"10.77.{self.number}.{place}"

    def attach(self, machine: Space) -> tuple[str, Link]:
        """Connect a machine; return its address and its cable."""
        self._count += 1
        address, end = self.address_of(self._count + 1), f"port{self._count}"
        peer = ("peer", "name", end, "netns", self.bridge.pid)
        call("ip", "link", "add", "eth0", "netns", machine.pid, "type", "veth", *peer)
        self.bridge.call("ip", "link", "set", end, "master", "bridge", "up")
        machine.call("ip", "addr", "add", f"{address}/24", "dev", "eth0")
        machine.call("ip", "link", "set", "eth0", "up")
        machine.call("sysctl", "-qw", "net.ipv4.conf.eth0.route_localnet=1")
        machine.call("ip", "rule", "add", "pref", "100", "lookup", "local")
        machine.call("ip", "rule", "del", "pref", "0")
        machine.call("ip", "route", "add", "default", "via", self.address, "src", address, "table", _TABLE)
        self._machines.append(machine)
        for port in self._exposed:
            self._expose(machine, port)
        return address, Link(self.bridge, end)

    def detach(self, machine: Space) -> None:
        if machine in self._machines:
            self._machines.remove(machine)

    def expose(self, *ports: int) -> None:
        """Make ports that listen on 127.0.0.1 of this machine reachable as 127.0.0.1 on all others.

        Connections go over the network, so cuts and captures apply; a server sees the machine's address.
        """
        for port in ports:
            if port not in self._exposed:
                self._exposed.append(port)
                for machine in self._machines:
                    self._expose(machine, port)

    def _expose(self, machine: Space, port: int) -> None:
        selector = ("to", "127.0.0.1", "ipproto", "tcp", "dport", port)
        machine.call("ip", "rule", "add", "pref", "10", *selector, "lookup", _TABLE)

    def close(self) -> None:
        """Remove the network, with this machine's interface; machines have to be closed before."""
        self.bridge.close()
        with contextlib.suppress(RuntimeError, AttributeError):  # else the kernel does that a moment later
            call("ip", "link", "del", self.interface)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
