"""A host whose executors cannot serve costs its own slots alone, is named with what to do, and serves as soon
as that is done. MySQL to PostgreSQL; rowlock is installed on the hosts, so each can have another one."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MySQL, PostgreSQL
from tests.faults.spark_clock import PROGRAM, build_clock, build_program, measure_clock, permit_program
from tests.faults.spark_executors import TOKEN, RunOnHosts, build_host, make_package, run_on_hosts
from tests.servers.spark_host import SparkHost

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

WAIT_S = 5.0
"""The longest time that a table may wait while another host is bad."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that hosts see, unlike those for temporary files: `good` has this rowlock, `other` another."""
    package = make_package(tmp_path_factory.mktemp("package"))
    folder = Path(tempfile.mkdtemp(prefix="rowlock-installed-", dir="/var/tmp"))
    for name in ("good", "other"):
        with tarfile.open(package) as archive:
            archive.extractall(folder / name, filter="data")
    with (folder / "other/consumer/__init__.py").open("a") as file:
        file.write("# changed\n")
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def system(
    mysql: MySQL, postgres: PostgreSQL, kafka: Kafka, installed: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunOnHosts]:  # fmt: skip
    folder = tmp_path_factory.mktemp("bad-hosts")
    good = build_host(
        folder / "executor-token",
        environment={"PYTHONPATH": str(installed / "good")},
        files=build_program(folder),
    )
    with run_on_hosts(
        folder, None, mysql, kafka, postgres, "badhosts", hosts=[good], configure=permit_newest,
        python=str(folder / PROGRAM),
    ) as made:  # fmt: skip
        yield made


def permit_newest(system: RunOnHosts) -> None:
    """Let the newest host run its Python."""
    permit_program(system.cluster.hosts[-1], system.token.parent)


@contextlib.contextmanager
def bad_host(system: RunOnHosts, token: bytes | None = TOKEN, **more: Any) -> Iterator[SparkHost]:
    """Add a host that is closed at the end."""
    files = {**build_program(system.token.parent), **more.pop("files", {})}
    host = system.cluster.add_host(build_host(system.token, token or TOKEN, files=files, **more))
    permit_newest(system)
    if token is None:
        write_token(system, host, None)
    try:
        yield host
    finally:
        host.close()
        system.cluster.hosts.remove(host)
        system.until_open("host1")


def write_token(system: RunOnHosts, host: SparkHost, token: bytes | None) -> None:
    """Write the file with the token of a host, as its root does; None: remove it."""
    if host.space is None:
        pytest.skip("the hosts are not apart")
    path = shlex.quote(str(system.token))
    text = "" if token is None else shlex.quote(token.decode())
    write = f"rm {path}" if token is None else f"printf %s {text} > {path}; chown {host.user} {path}"
    host.space.call("sh", "-c", write)


def await_line(system: RunOnHosts, host: SparkHost, *words: str) -> dict[str, Any]:
    """Await a line of the log about a failed slot that has the host and the words."""

    def find() -> dict[str, Any] | None:
        for line in system.read_log():
            text = str(line.get("error", ""))
            is_named = host.name in text or host.address == line.get("host")
            if line["event"] == "slot's query failed" and is_named and all(word in text for word in words):
                return line
        return None

    try:
        found: dict[str, Any] = system.run.until(find, f"{host.name} named with {words}", 300)
    except AssertionError as error:
        seen = [line for line in system.read_log() if line.get("level") == "warning"][-5:]
        raise AssertionError(f"{error}; warnings: {seen}") from None
    print(f"\n{found}")
    return found


def check_others_go_on(system: RunOnHosts, seed: int) -> None:
    waited = system.measure(lambda: time.sleep(3), seed)
    assert waited < WAIT_S
    assert system.list_open_hosts() == ["host1"]


def test_a_host_without_rowlock(system: RunOnHosts) -> None:
    system.until_open("host1")
    with bad_host(system) as host:
        await_line(system, host, "rowlock is not installed", "rowlock spark package")
        check_others_go_on(system, seed=1)


def test_a_host_with_another_rowlock(system: RunOnHosts, installed: Path) -> None:
    system.until_open("host1")
    with bad_host(system, environment={"PYTHONPATH": str(installed / "other")}) as host:
        await_line(system, host, f"the executor on {host.name} has rowlock ", "(the agent has ")
        check_others_go_on(system, seed=2)


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (b"the token of another system\n", "is refused"),
        (b"wrong\n", "has 5 characters"),
        (None, "cannot read"),
    ],
)
def test_a_host_serves_as_soon_as_its_token_is_right(
    system: RunOnHosts, installed: Path, token: bytes | None, words: str
) -> None:
    system.until_open("host1")
    with bad_host(system, token, environment={"PYTHONPATH": str(installed / "good")}) as host:
        await_line(system, host, words, "spark.executor_token_file")
        check_others_go_on(system, seed=3)
        write_token(system, host, TOKEN)
        system.until_open("host1", host.name)


@pytest.mark.parametrize("offset_s", [600, -600])
def test_a_host_whose_clock_is_ten_minutes_off(system: RunOnHosts, installed: Path, offset_s: int) -> None:
    system.until_open("host1")
    folder = system.token.parent
    files = build_clock(folder, offset_s)
    with bad_host(system, environment={"PYTHONPATH": str(installed / "good")}, files=files) as host:
        assert abs(measure_clock(host, folder) - offset_s) < 50
        system.until_open("host1", host.name)
        waited = system.measure(system.cluster.hosts[0].kill_executor, seed=4)
        assert waited < WAIT_S
