"""Passwords that are changed while a run works: it reports that they are refused, does not repeat them so
often that the server would lock the account, and continues by itself once their files have the new ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL
from tests.kits.documented_user import PASSWORD, documented_user
from tests.kits.whole_run import WholeRun, whole_run

pytestmark = pytest.mark.timeout(1500)

NEW = "another password"
NAMES = "SELECT id, name FROM acct ORDER BY id"


def rotate(server: MariaDB | MySQL, user: str) -> None:
    """Change the password, and end the connections that were made with the earlier one."""
    server.execute(f"ALTER USER '{user}'@'%' IDENTIFIED BY '{NEW}'")
    for (number,) in server.execute(f"SELECT id FROM information_schema.processlist WHERE user = '{user}'"):
        server.execute(f"KILL {number}")


def count_refused(server: MariaDB | MySQL) -> int:
    """Return how many log-ins have failed since the server's start."""
    [(_, count)] = server.execute("SHOW GLOBAL STATUS LIKE 'Aborted_connects'")
    return int(count)


def test_a_run_continues_with_new_passwords_without_a_reload(
    kafka: Kafka, mariadb: MariaDB, mysql: MySQL, unique: str, tmp_path: Path
) -> None:
    db = unique
    pipelines = {
        "p": {"sources": ["b"], "target": "hq", "routes": [{"from": f"{db}.*", "to": f"{db}.{{table}}"}]}
    }
    with (
        whole_run(tmp_path, db, kafka, {"b": mariadb}, {"hq": mysql}, pipelines) as run,
        documented_user(mariadb, f"{db}s", db) as reader,
    ):
        writer = f"{db}t"
        mysql.execute(f"CREATE USER '{writer}'@'%' IDENTIFIED BY '{PASSWORD}'")
        mysql.execute(f"GRANT ALL ON *.* TO '{writer}'@'%'")
        for part, user in (("sources", reader), ("targets", writer)):
            (section,) = run.parts[part].values()
            del section["password"]
            section.update(user=user, password_file=f"{part}.password")
            (tmp_path / f"{part}.password").write_text(PASSWORD)
        run.write_parts()
        run.change(
            "b",
            "CREATE TABLE acct (id INT PRIMARY KEY, name VARCHAR(20))",
            "INSERT INTO acct VALUES (1, 'a')",
        )
        run.run.start()
        run.arrives(NAMES, [(1, "a")])

        before = [count_refused(server) for server in (mariadb, mysql)]
        rotate(mariadb, reader)
        rotate(mysql, writer)
        run.change("b", "INSERT INTO acct VALUES (2, 'b')")
        run.run.until(lambda: reports_refusal(run), "the refused log-in in `status`", 300)
        assert run.read("hq", NAMES) == [(1, "a")]
        for server, count in zip((mariadb, mysql), before, strict=True):
            assert count_refused(server) - count <= 5

        for part in ("sources", "targets"):
            (tmp_path / f"{part}.password").write_text(NEW)
        run.arrives(NAMES, [(1, "a"), (2, "b")])
        assert "configuration reloaded" not in run.run.log.read_text()
        run.change("b", "INSERT INTO acct VALUES (3, 'c')")
        run.arrives(NAMES, [(1, "a"), (2, "b"), (3, "c")])


def reports_refusal(run: WholeRun) -> bool:
    return "Access denied" in run.invoke("status").output
