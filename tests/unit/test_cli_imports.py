"""Commands that people type import nothing that only the processes of a system need, for it takes long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kits.command_line import HEAVY_MODULES, find_imported, run_and_list_imports, serve_control
from tests.stands.fake_control import FakeControl

CONFIG = """\
kafka: {{bootstrap: "127.0.0.1:1"}}
sources:
  b1: {{type: mariadb, host: 127.0.0.1, port: 1, user: u, password: x, tables: [bank.*]}}
coordination: {{rest: "{rest}", coordinators: ["127.0.0.1:1"]}}
"""
#: What only `run` on a terminal needs. (httpx imports rich.live by itself.)
LIVE_VIEW = {"rowlock.live"}
#: What a command needs only while it runs.
LATER = HEAVY_MODULES | {
    "pydantic", "structlog", "rich", "httpx", "confluent_kafka", "sqlalchemy", "msgspec", "yaml",
    "producer", "consumer", "coordinator",
}  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [(), ("--help",), ("--version",), ("status", "--help"), ("units", "--help"), ("units", "list", "--help"),
     ("completion", "bash")],
    ids=" ".join,
)  # fmt: skip
def test_help_imports_nothing_that_only_a_running_command_needs(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    ended, modules = run_and_list_imports(*words, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "rowlock.commands.cluster" in modules
    assert find_imported(modules, LATER) == set()


@pytest.mark.parametrize(
    "words", [("units", "list"), ("events",), ("agents", "list"), ("rebalance",)], ids=" ".join
)
def test_commands_to_the_leader_import_only_what_asks_it(words: tuple[str, ...], tmp_path: Path) -> None:
    with serve_control(FakeControl()) as rest:
        (tmp_path / "rowlock.yaml").write_text(CONFIG.format(rest=rest))
        ended, modules = run_and_list_imports(*words, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "httpx" in modules
    unneeded = HEAVY_MODULES | LIVE_VIEW | {"confluent_kafka", "sqlalchemy", "consumer", "coordinator"}
    assert find_imported(modules, unneeded) == set()


@pytest.mark.parametrize("name", ["status", "check", "headroom"])
def test_status_and_check_import_no_server_and_no_spark(name: str, tmp_path: Path) -> None:
    """The commands themselves are run on real services by tests/integration/test_cli_imports.py."""
    ended, modules = run_and_list_imports(folder=tmp_path, code=f"import rowlock.inspect.{name}")
    assert ended.returncode == 0, ended.stderr
    assert f"rowlock.inspect.{name}" in modules
    assert find_imported(modules, HEAVY_MODULES | LIVE_VIEW) == set()


def test_run_imports_the_live_view_only_where_it_shows_it(tmp_path: Path) -> None:
    code = "import rowlock.cli, rowlock.commands.tables, rowlock.processes.run"
    ended, modules = run_and_list_imports(folder=tmp_path, code=code)
    assert ended.returncode == 0, ended.stderr
    assert "rich.table" in modules
    assert find_imported(modules, LIVE_VIEW | {"rich.live"}) == set()


@pytest.mark.parametrize("breach", ["pyspark", "pyarrow", "grpc", "coordinator.rest", "rowlock.live"])
def test_an_import_that_is_planted_is_found(breach: str, tmp_path: Path) -> None:
    ended, modules = run_and_list_imports(folder=tmp_path, code=f"import rowlock.cli, {breach}")
    assert ended.returncode == 0, ended.stderr
    assert breach in find_imported(modules, HEAVY_MODULES | LIVE_VIEW)
