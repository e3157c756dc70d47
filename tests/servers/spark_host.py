"""A host with a Spark Worker: a machine of its own with its user, its folder and the programs it needs."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from deploy.embedded.home import ServiceHome
from deploy.embedded.ports import HOST, pick_port
from deploy.embedded.server_process import ServerProcess
from deploy.fetch.ivy import find_pyspark_jars
from deploy.fetch.java import find_java
from deploy.guard.processes import make_temporary_folder
from tests.kits.running import saying
from tests.servers.cpu_limit import CpuLimit
from tests.servers.network_spaces import Link, Network, Space, call
from tests.servers.spark_cluster import EXECUTOR, Master

_SOURCE_TREE = Path(__file__).resolve().parents[2]
_SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+PerfDisableSharedMem")


@dataclass
class Site:
    """What the hosts of a cluster have in common. `obstacle`: why there is no `network`."""

    logs: Path
    settings_file: Path
    network: Network | None
    obstacle: str | None
    master: Master


@dataclass(frozen=True)
class HostOptions:
    """How a host differs from others. `cpu`: cores of processor time for all its processes together."""

    cores: int = 2
    memory: str = "2g"
    cpu: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[Path, bytes] = field(default_factory=dict)
    """Files that only this host has, readable by its user only; below the folder of temporary files."""
    hides_tree: bool = True
    """Whether the host sees nothing of this machine's temporary files, source tree and .venv."""


class SparkHost:
    """A host with a Worker. `folder`: of all its files, at the same path here and there; `user`: user and
    group of all its processes."""

    def __init__(self, site: Site, name: str, place: int, options: HostOptions) -> None:
        self.name, self.options = name, options
        self.address, self.space, self.link, self.cpu = HOST, None, None, None
        self.user = os.geteuid() if site.network is None else 20_000 + site.network.number * 64 + place
        self.ui = pick_port()
        self._site = site
        self._port = pick_port()
        log = site.logs / f"{name}.log"
        self._home = ServiceHome(name, None, lambda: make_temporary_folder(f"rowlock-{name}-"), log)
        self.folder = self._home.folder
        self.process = ServerProcess(name, self._home, unprivileged=False)
        try:
            self._make(log)
            self.start()
        except BaseException:
            self.close()
            raise

    space: Space | None
    link: Link | None
    cpu: CpuLimit | None

    # --- life

    def start(self) -> None:
        """Start the Worker; returns when its Master knows it."""
        words: list[str | Path] = ["env", "-i", "/bin/sh", self.folder / "worker.sh"]
        if self.space is not None:
            words = [*self.space.enter(*words, user=self.user)]
        if self.cpu is not None:
            words = ["/bin/sh", "-c", f'{self.cpu.join}; exec "$@"', "sh", *words]
        self.process.start(words)
        self.process.await_answer(self._probe_worker, self._port, 90)

    def stop(self) -> None:
        """kill -9 of the Worker and all its executors; `start` starts it again."""
        doomed = self.processes()
        self.process.kill()
        _kill(doomed)

    def close(self) -> None:
        """End the host for good, as if its power was cut, and remove its files."""
        self.process.close()
        self.stop()
        if self.space is not None:
            if self._site.network is not None:
                self._site.network.detach(self.space)
            self.space.close()
        if self.cpu is not None:
            self.cpu.close()
        self._home.close()

    # --- processes

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the host, with the numbers that this machine gives them."""
        if self.space is not None:
            return self.space.processes() if self.space.pid else []
        with contextlib.suppress(psutil.Error):
            if self.process.running:
                return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def executors(self) -> list[psutil.Process]:
        """Return the Java processes of the executors."""
        return [each for each in saying(self.processes(), EXECUTOR) if each.name() == "java"]

    def kill_executor(self) -> int:
        """kill -9 of all executors with their Python processes; return how many executors there were."""
        executors = self.executors()
        _kill([*executors, *(child for each in executors for child in _children(each))])
        return len(executors)

    def send_signal(self, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT: the host hangs, and its network still acknowledges."""
        for each in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    def call(self, *words: str | Path) -> str:
        """Run a command on the host as its user and return its output."""
        return call(*words) if self.space is None else self.space.call(*words, user=self.user)

    @property
    def state(self) -> dict[str, Any]:
        """What the Worker's web page reports. Raises httpx.HTTPError if it does not answer."""
        answer = httpx.get(f"http://{self.address}:{self.ui}/json/", timeout=5, trust_env=False)
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    # --- network

    def cut(self, *ports: int, but: tuple[int, ...] = (), up: bool = True, down: bool = True) -> None:
        """Make the host's packets vanish until `connect`: all, or TCP from and to `ports` of this machine, or
        all TCP but these. `up` is from the host to this machine."""
        self._require_link().cut(ports, but=but, up=up, down=down)

    def connect(self) -> None:
        self._require_link().heal()

    def _require_link(self) -> Link:
        if self.link is None:
            pytest.skip(self._site.obstacle or "no network")
        return self.link

    # --- making

    def _make(self, log: Path) -> None:
        self._write_files()
        if self.options.cpu is not None:
            try:
                self.cpu = CpuLimit(self.name, self.options.cpu)
            except OSError as error:
                pytest.skip(f"no control group for processor time: {error}")
        if (network := self._site.network) is not None:
            self.space = Space(self.name, log, self._list_mounts())
            self.address, self.link = network.attach(self.space)
            (self.folder / "etc-hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        self._write(self.folder / "worker.sh", self._build_script().encode())

    def _write_files(self) -> None:
        folder = self.folder
        for name in ("spark", "java", "local", "work", "files"):
            (folder / name).mkdir()
        (folder / "etc-hosts").touch()
        (folder / "passwd").write_text(
            f"root:x:0:0::/:/bin/sh\nspark:x:{self.user}:{self.user}::{folder}:/bin/sh\n"
        )
        self._write(folder / "spark.conf", self._site.settings_file.read_bytes())
        for number, (path, content) in enumerate(self.options.files.items()):
            if not self.options.hides_tree or not path.is_relative_to(tempfile.gettempdir()):
                raise ValueError(f"{path} is not below a {tempfile.gettempdir()} that only the host has")
            self._write(folder / "files" / str(number), content)
        if self._site.network is not None:
            for path in (folder, *(folder / name for name in ("local", "work", "files"))):
                os.chown(path, self.user, self.user)
        folder.chmod(0o700)

    def _write(self, path: Path, content: bytes) -> None:
        path.touch(mode=0o600)
        path.write_bytes(content)
        if self._site.network is not None:
            os.chown(path, self.user, self.user)

    def _list_mounts(self) -> list[str]:
        """Return the shell commands that give the host the files it has: Spark, Java and its own folder."""
        folder, temporary = shlex.quote(str(self.folder)), shlex.quote(tempfile.gettempdir())
        java = Path(find_java()).resolve().parents[1]
        lines = [
            f"mount --bind {folder}/passwd /etc/passwd",
            f"mount --bind {folder}/etc-hosts /etc/hosts",
            f"mount --bind {shlex.quote(str(find_pyspark_jars().parent))} {folder}/spark",
            f"mount --bind {shlex.quote(str(java))} {folder}/java",
        ]
        if self.options.hides_tree:
            lines += [
                f"mount --rbind {folder} /mnt",
                f"mount -t tmpfs -o mode=1777 none {temporary}",
                f"mkdir -p {folder}",
                f"mount --move /mnt {folder}",
            ]
            for hidden in (_SOURCE_TREE, Path(sys.prefix).resolve()):
                path = shlex.quote(str(hidden))
                lines.append(f"if [ -d {path} ]; then mount -t tmpfs none {path}; fi")
        for number, path in enumerate(self.options.files):
            lines += [
                f"mkdir -p {shlex.quote(str(path.parent))}",
                f"cp -p {folder}/files/{number} {shlex.quote(str(path))}",
            ]
        return [*lines, "cd /"]

    def _build_script(self) -> str:
        apart = self.space is not None
        spark = self.folder / "spark" if apart else find_pyspark_jars().parent
        java = self.folder / "java/bin/java" if apart else find_java()
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "JAVA_HOME": str(Path(java).parents[1] if apart else Path(java).resolve().parents[1]),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "SPARK_HOME": str(spark),
            "SPARK_SCALA_VERSION": "2.13",  # else a Worker looks for Spark's build folders to learn it
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_LOCAL_IP": self.address,
            **self.options.environment,
        }
        own = ("--host", self.address, "--port", self._port, "--webui-port", self.ui)
        size = ("--cores", self.options.cores, "--memory", self.options.memory)
        files = ("--work-dir", self.folder / "work", "--properties-file", self.folder / "spark.conf")
        main = ("-cp", f"{spark}/jars/*", "org.apache.spark.deploy.worker.Worker")
        words = [java, *_SMALL, *main, *own, *size, *files, self._site.master.url]
        return "\n".join(
            [
                "umask 077",
                f"cd {shlex.quote(str(self.folder))}",
                *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
                f"exec {shlex.join(map(str, words))}",
            ]
        )

    def _probe_worker(self) -> None:
        known = self._site.master.state["workers"]
        if (self.address, self._port, "ALIVE") not in [(w["host"], w["port"], w["state"]) for w in known]:
            raise ConnectionError("the Master does not know the Worker yet")


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def _kill(processes: list[psutil.Process]) -> None:
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(processes, timeout=10)
