"""`rowlock demo` whole, as `make demo` starts it: what a newcomer sees, in the time that is promised, and
nothing left."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from deploy.embedded.services import MariaDB, PostgreSQL
from deploy.fetch.downloads import fetch_kafka_home, fetch_mariadb_home
from rowlock.demo.bank import BANK_TABLES
from tests.kits.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PROMISED_S = 180.0
MARK = "ROWLOCK_TEST_DEMO"


def left_behind(mark: str) -> list[str]:
    """The command lines of processes that have inherited our mark from the demo."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:  # it has just ended, or is another user's
            continue
    return found


def figures(line: str) -> list[int]:
    return [int(cell.replace(",", "")) for cell in re.findall(r"(?<=│) *([\d,]+) *(?=│)", line)]


def folder_of(reported: str) -> Path:
    found = re.search(r"rowlock run -c (\S+)/rowlock\.yaml", reported)
    assert found, reported
    return Path(found[1])


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_newcomer_sees_every_row_arrive(tmp_path: Path) -> None:
    (
        fetch_kafka_home(),
        fetch_mariadb_home(),
    )  # downloads are not part of the promise
    mark = str(tmp_path)  # no other test's
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "rowlock.cli", "demo"], cwd=ROOT, env={**os.environ, MARK: mark},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    assert seconds < PROMISED_S, done.stdout
    print(done.stdout)  # with -s: what a user sees
    summary = re.split(r"^Rows +$", done.stdout, flags=re.MULTILINE)[1]
    totals = [0, 0, 0]
    for table in BANK_TABLES:
        (line,) = (line for line in summary.splitlines() if line.startswith(f"│ {table} "))
        snapshot, captured, applied, pace = figures(line)
        assert 0 < snapshot < captured, line
        assert applied == captured, line
        assert pace > 0, line
        totals = [total + each for total, each in zip(totals, (snapshot, captured, applied), strict=True)]
        for branch in ("north", "south"):
            assert f"equal     {branch}:bank.{table} → hq:public.{table}: " in done.stdout
    reported = re.search(r"([\d,]+) of the workload and ([\d,]+) of the probe", summary)
    existing = re.search(r"existing rows +│ ([\d,]+),", summary)
    assert reported
    assert existing
    written, probes, seeded = (
        int(text.replace(",", "")) for text in (*reported.groups(), *existing.groups())
    )
    assert totals == [seeded, seeded + written + probes, seeded + written + probes], "each row counts once"
    assert re.search(r"commit to visible +│ p50 \d+ ms, p99 \d+ ms", summary)
    assert "every row of the branches is in the head office, and none else" in summary
    assert "DIFFERENT" not in done.stdout
    until(lambda: not left_behind(mark), "the end of all processes of the demo", 15)
    assert not folder_of(done.stdout).exists(), "the folder with the password"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_command_that_a_kept_demo_prints_works(tmp_path: Path) -> None:
    mark = str(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-m", "rowlock.cli", "demo", "--keep", "--seconds", "5"], cwd=ROOT,
        env={**os.environ, MARK: mark}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ) as demo, contextlib.ExitStack() as stack:  # fmt: skip
        stack.callback(demo.terminate)
        assert demo.stdout is not None
        printed = itertools.takewhile(lambda line: "tail -f" not in line, demo.stdout)
        lines = list(itertools.dropwhile(lambda line: "Everything keeps running" not in line, printed))
        enter, *commands = (line.strip() for line in lines[1:] if line.strip() and "#" not in line)
        folder = Path(enter.removeprefix("cd "))

        def ask(command: str) -> str:
            typed = ["/bin/sh", "-c", command]
            return subprocess.run(typed, cwd=folder, capture_output=True, text=True, check=True).stdout

        assert len(commands) > 12
        reported = {}
        for command in commands:
            reported[command] = ask(command)
            print(f"{command}\n{reported[command]}")
            if "phone = " in command:
                until(lambda: "0241 1" in ask("./office -c 'SELECT * FROM customers WHERE id = 7'"), command)
            elif "0000-00-00" in command:
                until(lambda: "9000001" in ask("./rowlock quarantine list"), command)
            elif "opened = " in command:
                until(lambda: "9000001" in ask("./rowlock quarantine list --resolved"), command)
        assert re.search(r"ms later: in the head office", reported["./follow"])
        assert "2026-01-01" in reported['./office -c "SELECT * FROM accounts WHERE id = 9000001"']
    until(lambda: not left_behind(mark), "the end of all processes of the demo", 15)
    assert not folder.exists()


def test_the_clients_that_a_kept_demo_names_open_the_databases(
    mariadb: MariaDB, postgres: PostgreSQL, mariadb_db: str, pg_db: str
) -> None:
    mariadb.execute("CREATE TABLE t (x VARCHAR(9))", database=mariadb_db)
    mariadb.execute("INSERT INTO t VALUES ('Köln')", database=mariadb_db)
    postgres.execute("CREATE TABLE t AS SELECT 'Köln' AS x", database=pg_db)
    for shell in (mariadb.build_shell_command(mariadb_db), postgres.build_shell_command(pg_db)):
        # As in a terminal of somebody else: nothing on PATH, another folder, no settings of the demo.
        reported = subprocess.run(
            shell, input="SELECT x FROM t;\n", cwd="/", env={}, capture_output=True, text=True, check=True
        )
        assert "Köln" in reported.stdout
