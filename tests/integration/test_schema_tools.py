"""gh-ost and pt-online-schema-change alter a captured table while it is written: the topic goes on, without a
stop and without a copy."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.embedded.services import MariaDB, MySQL
from tests.kits.capture import position, running
from tests.kits.schema_tools import ALTER, ATOMIC, TWO_STEPS, WANTED, Tools, ghost, percona
from tests.kits.schema_tools import tools as tools
from tests.kits.waiting import until


def test_percona_s_statements_while_rows_change(tools: Tools) -> None:
    with tools.live():
        percona(tools, ALTER)
    tools.judge(["id", "v", "version", "c"], WANTED)
    for name in ("_t_new", "_t_old"):
        assert tools.events(name) == []


@pytest.mark.parametrize("swap", [ATOMIC, TWO_STEPS])
def test_gh_ost_s_statements(tools: Tools, swap: tuple[str, ...]) -> None:
    tools.run("UPDATE t SET v = 'x', version = 2 WHERE id < 9")
    tools.run("UPDATE t SET v = 'y', version = 3 WHERE id < 5")
    before = tools._gen()
    with running(tools.config(), "s") as unit:
        until(lambda: tools._gen() > before, "a start")
        ghost(tools, ALTER, *swap)
        tools.change(
            "INSERT INTO t (v, version) VALUES ('z', 1)", "UPDATE t SET c = 9, version = 4 WHERE id < 3"
        )
        assert unit.stop() == 0
    tools.run("DELETE FROM t WHERE id = 7")
    tools.judge(["id", "v", "version", "c"], WANTED)
    for name in ("_t_gho", "_t_ghc", "_t_del"):
        assert tools.events(name) == []
    assert position(tools.kafka.bootstrap, tools.db, "s").shadows == ()


def test_a_tool_that_is_done_before_capture_reads_of_it(tools: Tools) -> None:
    """Capture ends between the shadow's statements and the swap: what it read of them is in its
    position."""
    tools.run("UPDATE t SET v = 'x', version = 2 WHERE id < 9")
    tools.run("CREATE TABLE _t_gho LIKE t", f"ALTER TABLE _t_gho {ALTER}")
    (shadow,) = position(tools.kafka.bootstrap, tools.db, "s").shadows
    assert (shadow.name, shadow.table, len(shadow.statements)) == ("_t_gho", "t", 1)
    tools.change(
        "INSERT IGNORE INTO _t_gho (id, v, version) SELECT id, v, version FROM t", *ATOMIC,
        "UPDATE t SET v = 'late', version = 3 WHERE id = 1",
    )  # fmt: skip
    tools.run()
    tools.judge(["id", "v", "version", "c"], WANTED)
    assert position(tools.kafka.bootstrap, tools.db, "s").shadows == ()


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho ADD UNIQUE (v)", *ATOMIC),
        ("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho CHANGE v w VARCHAR(20)", *ATOMIC),
        ("CREATE TABLE _t_gho LIKE t", "RENAME TABLE t TO kept, _t_gho TO t"),
        # a person's way of deleting many rows
        ("CREATE TABLE _t_new LIKE t", "INSERT INTO _t_new SELECT * FROM t WHERE id > 9", "RENAME TABLE t TO _t_old, _t_new TO t"),  # noqa: E501
    ],
)  # fmt: skip
def test_what_may_have_lost_rows_or_values_stops_the_table(tools: Tools, statements: tuple[str, ...]) -> None:
    tools.run("UPDATE t SET v = 'x', version = 2 WHERE id < 9")
    tools.run(*statements, "DELETE FROM t")
    tools.stopped("t", "rows-replaced")
    assert not any(event.op == "d" for event in tools.events("t"))


def _packages() -> Path:
    """pt-online-schema-change from Debian's packages, unpacked; skips where they cannot be had."""
    folder = Path.home() / ".cache" / "rowlock" / "percona-toolkit"
    if not (folder / "usr" / "bin" / "pt-online-schema-change").exists():
        if not (shutil.which("apt-get") and shutil.which("dpkg")):
            pytest.skip("pt-online-schema-change is taken from Debian's packages, and this is no Debian")
        folder.mkdir(parents=True, exist_ok=True)
        expected = ["percona-toolkit", "libdbi-perl", "libdbd-mysql-perl", "libmariadb3"]
        got = subprocess.run(
            ["apt-get", "download", *expected], cwd=folder, capture_output=True, text=True, check=False
        )
        if got.returncode:
            pytest.skip(f"Debian's packages of pt-online-schema-change cannot be had: {got.stderr[-300:]}")
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
    return folder


def _run(command: list[str], **environment: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def _percona_itself(tools: Tools) -> None:
    root = _packages()
    (perl,) = (root / "usr" / "lib").glob("*/perl5/*")
    dsn = f"h={tools.database.host},P={tools.database.port},u={tools.database.user},D={tools.db},t=t"
    _run(
        [
            "perl", str(root / "usr" / "bin" / "pt-online-schema-change"), "--execute", "--alter", ALTER,
            "--chunk-size", "10", "--recursion-method", "none", "--charset", "utf8mb4", "--no-version-check",
            dsn,
        ],
        PERL5LIB=f"{perl}:{root / 'usr' / 'share' / 'perl5'}", LD_LIBRARY_PATH=str(perl.parent.parent),
    )  # fmt: skip


def test_pt_online_schema_change_itself(request: pytest.FixtureRequest, tools: Tools) -> None:
    if not isinstance(tools.database, MariaDB):
        pytest.skip("pt-online-schema-change 3.2 does not know this version of MySQL")
    with tools.live():
        _percona_itself(tools)
    tools.judge(["id", "v", "version", "c"], WANTED)


def _ghost_itself(tools: Tools, *options: str) -> None:
    """gh-ost as it is installed, or as `go build ./go/cmd/gh-ost` makes it from its repository, which holds
    all that it needs."""
    binary = os.environ.get("ROWLOCK_GH_OST") or shutil.which("gh-ost")
    if binary is None:
        pytest.skip("gh-ost is not in PATH, and ROWLOCK_GH_OST does not name it")
    _run(
        [
            binary, "--execute", "--allow-on-master", "--host", tools.database.host, "--port",
            str(tools.database.port), "--user", tools.database.user, "--database", tools.db, "--table", "t",
            "--alter", ALTER, "--chunk-size", "10", "--initially-drop-ghost-table",
            "--initially-drop-old-table", "--assume-rbr", *options,
        ]
    )  # fmt: skip


@pytest.mark.parametrize("options", [(), ("--cut-over=two-step",)])
def test_gh_ost_itself(tools: Tools, options: tuple[str, ...]) -> None:
    if not isinstance(tools.database, MySQL):
        pytest.skip("gh-ost is for MySQL")
    with tools.live():
        _ghost_itself(tools, *options)
    tools.judge(["id", "v", "version", "c"], WANTED)
