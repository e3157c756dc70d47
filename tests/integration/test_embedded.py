"""The embedded services themselves: real servers, started, broken and ended."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import psutil
import psycopg
import pymysql
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.embedded import postgres as postgres_module
from deploy.embedded.ports import HOST, pick_port
from deploy.embedded.services import (
    EmbeddedError,
    Kafka,
    MariaDB,
    MySQL,
    PostgreSQL,
    Service,
    combine_services,
)
from deploy.fetch import downloads
from deploy.fetch.cache import cache_dir
from deploy.fetch.downloads import H2, fetch_h2_jar, fetch_kafka_home
from deploy.guard.processes import NOBODY_UID
from tests.services import without_mysql

ROOT = Path(__file__).parents[2]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="is about what root does differently")


class Up:
    """`python -m deploy.embedded up` as another process, and handles on the servers that it started."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "deploy.embedded", "up", *options]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=pipe, start_new_session=True)
        assert self.process.stdout is not None
        lines: list[bytes] = []
        while not lines or lines[-1] != b"}\n":
            lines.append(self.process.stdout.readline())
            assert lines[-1], f"it ended with code {self.process.wait()} before everything was up"
        self.services: dict[str, dict[str, Any]] = json.loads(b"".join(lines))
        self.handles = {name: os.pidfd_open(each["pid"]) for name, each in self.services.items()}

    def assert_all_gone(self) -> None:
        for name, handle in self.handles.items():
            assert select.select([handle], [], [], 30)[0], f"{name} outlived its parent"
            os.close(handle)

    def homes(self) -> list[Path]:
        return [Path(each["log"]).parent for each in self.services.values()]


def everything() -> list[str]:
    options = ["--kafka", "--port", "0", "--mariadb", "2", "--postgres"]
    return options if MySQL.explain_unavailable() else [*options, "--mysql"]


def wait_until_gone(paths: list[Path]) -> None:
    pause = threading.Event()
    ends = time.monotonic() + 20
    while any(path.exists() for path in paths):
        assert time.monotonic() < ends, f"still there: {[path for path in paths if path.exists()]}"
        pause.wait(0.05)


def test_kill_9_of_the_parent_ends_every_service() -> None:
    up = Up(*everything())
    up.process.kill()
    up.process.communicate()
    up.assert_all_gone()
    wait_until_gone(up.homes())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_end_every_service(number: signal.Signals, code: int) -> None:
    up = Up("--mariadb", "1", "--postgres")
    os.killpg(up.process.pid, number)  # as the terminal does: the whole foreground group
    up.process.communicate()
    assert up.process.returncode == code
    up.assert_all_gone()
    assert not any(home.exists() for home in up.homes())


def test_kept_data_of_kafka_are_there_again_at_the_same_port(tmp_path: Path) -> None:
    folder, port = tmp_path / "new" / "broker", str(pick_port())
    for seen in ([], ["t"]):
        up = Up("--kafka", "--port", port, "--keep", str(folder))
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        assert list(admin.list_topics(timeout=30).topics) == seen
        if not seen:
            admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        os.killpg(up.process.pid, signal.SIGINT)
        up.process.communicate()
        up.assert_all_gone()


def test_kill_9_while_services_are_starting(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deploy.embedded", "up", "--mariadb", "2"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    tmp_path.chmod(0o755)
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL) as process:
        pause = threading.Event()
        while not list(tmp_path.glob("rowlock-mariadb-*/data/*")):
            assert process.poll() is None
            pause.wait(0.01)
        process.kill()
    wait_until_gone(list(tmp_path.glob("rowlock-*")))
    assert not [each for each in psutil.process_iter(["cmdline"]) if _mentions(each, tmp_path)]


def _mentions(process: psutil.Process, folder: Path) -> bool:
    return any(str(folder) in part for part in process.info["cmdline"] or [])


def test_a_second_start_downloads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is in the cache by now, as after the first `make demo`."""
    with combine_services(kafka := Kafka(), mariadb := MariaDB(), postgres := PostgreSQL()):
        assert all(each.running for each in (kafka, mariadb, postgres))
    monkeypatch.setattr(downloads, "retrieve_jars", _not_again)
    with combine_services(kafka := Kafka(), mariadb := MariaDB(), postgres := PostgreSQL()):
        assert all(each.running for each in (kafka, mariadb, postgres))


def _not_again(name: str, *_: object) -> None:
    raise AssertionError(f"{name} is downloaded again")


def test_a_taken_port_is_named() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        service = PostgreSQL(port=port)
        with pytest.raises(EmbeddedError, match=f"port {port} .*so PostgreSQL cannot"), service:
            pass


def test_a_full_disk_is_refused_before_the_start() -> None:
    with pytest.raises(EmbeddedError, match="MB are free; PostgreSQL's data needs"):
        PostgreSQL(min_free=1 << 60).__enter__()


def test_no_java_stops_kafka_with_a_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fetch_kafka_home()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedError, match="no `java`"):
        Kafka().__enter__()


def test_a_server_that_dies_at_start_shows_its_log() -> None:
    with pytest.raises(EmbeddedError, match=r"(?s)ended with code .*unknown option '--no-such-option'"):
        MariaDB(extra=["--no-such-option"]).__enter__()


def test_a_server_that_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    command = PostgreSQL._build_command

    def impatient(service: PostgreSQL) -> list[str | Path]:
        monkeypatch.setattr(PostgreSQL, "ready_within", 2.0)  # from here on: initdb may take its time
        return command(service)

    def probe(_: PostgreSQL) -> NoReturn:
        raise ConnectionError("nothing is heard")

    monkeypatch.setattr(PostgreSQL, "_build_command", impatient)
    monkeypatch.setattr(PostgreSQL, "_probe_server", probe)
    service = PostgreSQL()
    with pytest.raises(EmbeddedError, match=r"no answer on port .* within \d+ s .*nothing is heard"):
        service.__enter__()
    assert not service.running


def test_one_that_cannot_start_takes_the_others_with_it() -> None:
    good, bad = PostgreSQL(), MariaDB(extra=["--no-such-option"])
    with pytest.raises(EmbeddedError, match="no-such-option"):
        combine_services(good, bad).start()
    assert not good.running
    with pytest.raises(EmbeddedError, match="has been closed"):
        good.start()


def test_no_network_stops_the_download_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ivy is sent to a port of this machine where nobody listens."""
    settings = tmp_path / "settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="off"/><resolvers>'
        f'<ibiblio name="off" m2compatible="true" root="http://{HOST}:9/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("ROWLOCK_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("ROWLOCK_CACHE", str(tmp_path / "cache"))
    with pytest.raises(EmbeddedError, match="Ivy failed") as caught:
        fetch_h2_jar()
    assert "check the network" in caught.value.remedy
    assert not (tmp_path / "cache" / H2).exists()


def test_the_cache_is_not_in_the_work_tree() -> None:
    assert not cache_dir().is_relative_to(ROOT)


# --- each service: data survives, loopback only, paused and resumed


@pytest.fixture(scope="module", params=[MariaDB, PostgreSQL, MySQL])
def database(request: pytest.FixtureRequest) -> Iterator[MariaDB | MySQL | PostgreSQL]:
    if request.param is MySQL and (reason := MySQL.explain_unavailable()):
        without_mysql(reason)
    with request.param() as service:
        yield service


def rows(service: MariaDB | MySQL | PostgreSQL, table: str) -> int:
    database = "postgres" if isinstance(service, PostgreSQL) else "mysql"
    return int(service.execute(f"SELECT count(*) FROM {table}", database=database)[0][0])


def create(service: MariaDB | MySQL | PostgreSQL, table: str) -> None:
    database = "postgres" if isinstance(service, PostgreSQL) else "mysql"
    service.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)", database=database)
    service.execute(f"INSERT INTO {table} VALUES (1)", database=database)


def test_data_survives_a_restart_and_a_kill(database: MariaDB | MySQL | PostgreSQL, unique: str) -> None:
    create(database, unique)
    port = database.port
    database.restart()
    assert rows(database, unique) == 1
    database.kill()
    assert not database.running
    database.start()
    assert rows(database, unique) == 1
    assert database.port == port


def test_a_paused_server_is_silent_until_resumed(database: MariaDB | MySQL | PostgreSQL) -> None:
    is_postgres = isinstance(database, PostgreSQL)
    option: dict[str, Any] = (
        {"connect_timeout": 2} if is_postgres else {"connect_timeout": 1, "read_timeout": 1}
    )
    database.process.pause()
    with pytest.raises((psycopg.OperationalError, pymysql.err.OperationalError)):
        database.connect(**option)
    database.process.resume()
    database.connect().close()


def test_it_listens_on_the_loopback_interface_only(database: Service) -> None:
    assert_loopback(database)


def assert_loopback(service: Service) -> None:
    found = psutil.Process(service.process.pid).net_connections(kind="inet")
    listening = {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN}
    assert listening
    assert all(address.rpartition(":")[2] == HOST for address in listening)  # Java says ::ffff:127.0.0.1


def test_kafka_restarts_with_its_topics_and_creates_none_by_itself(kafka: Kafka, unique: str) -> None:
    assert_loopback(kafka)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(unique, 1, 1)])[unique].result(60)
    kafka.restart()
    kafka.kill()
    kafka.start()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    known = admin.list_topics(timeout=120).topics
    assert unique in known
    asked = admin.list_topics(f"{unique}-other", timeout=120).topics[f"{unique}-other"]
    assert asked.error is not None
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(unique, 1, 1)])[unique].result(60)


BINLOG = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
}


def test_mariadb_logs_whole_rows(mariadb: MariaDB) -> None:
    shown = dict(mariadb.execute("SHOW GLOBAL VARIABLES"))
    assert {name: shown[name] for name in BINLOG} == BINLOG
    assert shown["version"].startswith(MariaDB.read_version())
    assert mariadb.execute("SELECT count(*) FROM mysql.user WHERE user = ''") == [(0,)]


def test_mysql_logs_whole_rows(mysql: MySQL) -> None:
    shown = dict(mysql.execute("SHOW GLOBAL VARIABLES"))
    expected = {**BINLOG, "gtid_mode": "ON", "enforce_gtid_consistency": "ON"}
    assert {name: shown[name] for name in expected} == expected
    assert shown["version"].startswith("9.")
    assert psutil.Process(mysql.process.pid).uids().real == NOBODY_UID


def test_mysql_without_gtids() -> None:
    if reason := MySQL.explain_unavailable():
        without_mysql(reason)
    with MySQL(gtid_mode="OFF") as service:
        assert service.execute("SELECT @@gtid_mode") == [("OFF",)]


def test_a_given_home_is_kept(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with MariaDB(home=home) as service:
        create(service, "kept")
    with MariaDB(home=home) as again:
        assert rows(again, "kept") == 1
    assert (home / "server.log").exists()


@as_root
def test_postgresql_whose_package_nobody_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the virtual environment is below /root: the binaries are copied to where the user `nobody` can
    read them."""
    package, passable = postgres_module._find_package(), postgres_module._is_passable
    monkeypatch.setattr(
        postgres_module,
        "_is_passable",
        lambda folder: not folder.is_relative_to(package) and passable(folder),
    )
    with PostgreSQL() as service:
        assert Path(psutil.Process(service.process.pid).exe()).is_relative_to(service.home.folder)


@as_root
def test_postgresql_below_a_private_folder(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    with pytest.raises(EmbeddedError, match="runs as nobody, who may not enter it"):
        PostgreSQL(home=tmp_path / "private" / "home").__enter__()


ORDINARY = """
from deploy.embedded.services import MySQL, PostgreSQL
with PostgreSQL() as service:
    print(service.execute("SELECT 1 + 1")[0][0], "needs root" in MySQL.explain_unavailable())
"""


@as_root
def test_an_ordinary_user_can_do_it_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Runs as the user `nobody`, with a Python that this user may execute; the whole suite runs so where it
    is not root."""
    python = next((each for each in (sys.executable, "/usr/bin/python3") if _nobody_runs(each)), None)
    if python is None:
        pytest.skip("nobody may not execute this Python")
    env = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "HOME": "/nonexistent"}
    answer = subprocess.run(
        [python, "-B", "-c", ORDINARY], env=env, cwd="/", user=NOBODY_UID, group=NOBODY_UID, extra_groups=[],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert answer.stdout == "2 True\n", answer.stderr


def _nobody_runs(python: str) -> bool:
    version = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    try:
        answer = subprocess.run(
            [python, "-c", version], cwd="/", user=NOBODY_UID, group=NOBODY_UID, extra_groups=[], check=False
        )
    except OSError:
        return False
    return answer.returncode == 0


@pytest.mark.slow
def test_the_download_into_an_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWLOCK_CACHE", str(tmp_path))
    assert fetch_h2_jar()
    monkeypatch.setattr(downloads, "retrieve_jars", _not_again)
    assert fetch_h2_jar()
