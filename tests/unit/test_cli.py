"""The command line without servers: exit codes, one message for each mistake, and pages that name every
option."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import msgspec
import pytest
import structlog
from click import Command, Group
from click.testing import CliRunner

from rowlock.cli import main
from rowlock.commands.tables import build_unit_status_table, make_console
from rowlock.coordinator.units import ApplyUnitName, list_apply_units
from rowlock.inspect.caught_up import SourceStart
from rowlock.inspect.observed.applied import count_lag
from rowlock.inspect.observed.source_status import SourceStatus, judge_source
from rowlock.inspect.observed.unit_goals import list_lagging_units
from rowlock.inspect.status import ApplyUnitStatus, Status
from rowlock.processes import log
from rowlock.views.kafka import OffsetSpan
from schemas.config.model import load_config
from schemas.wire.records import SNAPSHOT_COMPLETE, Watermark
from tests.kits.command_line import CONFIG
from tests.kits.topic import usual_tables

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    return file


@pytest.fixture(autouse=True)
def _own_structlog() -> object:
    yield
    structlog.reset_defaults()


def commands(group: Group, prefix: str = "rowlock") -> list[tuple[str, Command]]:
    found: list[tuple[str, Command]] = []
    for name, command in group.commands.items():
        path = f"{prefix} {name}"
        found += commands(command, path) if isinstance(command, Group) else [(path, command)]
    return found


def test_the_reference_names_every_command_and_option() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for path, command in commands(main):
        assert f"`{path}" in page, path
        for option in command.params:
            for name in option.opts:
                assert name.startswith("-c") or name in page, (path, name)


def test_a_target_of_topics_numbers_no_rows(tmp_path: Path) -> None:
    """Neither source nor target is asked."""
    file = tmp_path / "c.yaml"
    feed = '{type: kafka, bootstrap: "127.0.0.1:1"}'
    file.write_text(re.sub(r"hq: \{.*\}", f"hq: {feed}", CONFIG))
    found = CliRunner().invoke(main, ["cutover", "--sql", "-c", str(file)])
    assert (found.exit_code, found.stdout.count("\n")) == (0, 1), found.output
    assert "no source table with AUTO_INCREMENT" in found.stdout
    refused = CliRunner().invoke(main, ["cutover", "--sql", "-c", str(file), "--target", "q"])
    assert refused.exit_code == 2
    assert "no pipeline writes to a database 'q'" in refused.stderr


def test_the_reference_names_every_field_of_the_json() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for model in (SourceStatus, ApplyUnitStatus):
        for field in msgspec.structs.fields(model):
            assert f"`{field.encode_name}`" in page, field


@pytest.mark.parametrize(
    "command", ["run", "check", "status", "verify", "quarantine list", "quarantine retry"]
)
def test_a_wrong_configuration_is_exit_2_with_all_lines(command: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.replace("mariadb", "maria").replace("target: hq", "target: nope"))
    result = CliRunner().invoke(main, [*command.split(), "-c", str(file)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "c.yaml:3: sources.b1.type: 'maria' is not known" in result.stderr
    assert "c.yaml:7: pipelines.p.target: there is no target 'nope'" in result.stderr
    assert "topsecret" not in result.output


@pytest.mark.parametrize("command", ["check", "run", "status", "agent"])
def test_what_is_not_built_is_refused_by_every_command(tmp_path: Path, command: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.replace("type: postgres", "type: tdsql"))
    name = ["--name", "a1"] if command == "agent" else []
    refused = CliRunner().invoke(main, [command, "-c", str(file), *name])
    assert refused.exit_code == 2
    assert (
        f"{file}:5: targets.hq.type: 'tdsql' is not supported in this version of rowlock; use "
        in refused.stderr
    )


def test_usage_errors_are_exit_2() -> None:
    assert CliRunner().invoke(main, ["status"]).exit_code == 2
    assert CliRunner().invoke(main, ["nothing"]).exit_code == 2


def test_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout.startswith("rowlock, version 0.")


def test_logs_hide_what_is_named_like_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    log.configure_logging()
    structlog.get_logger().info(
        "connected", password="abc", options={"sasl.password": "def", "x": "y"}, token="ghi"
    )
    assert json.loads(out.getvalue())["options"] == {"sasl.password": log.HIDDEN_FIELD_TEXT, "x": "y"}
    assert not [secret for secret in ("abc", "def", "ghi") if secret in out.getvalue()]


def watermark(**changes: object) -> Watermark:
    fields: dict[str, object] = {
        "source": "b1", "gen": 1, "position": (0, 3, 500, 0), "file": "binlog.000003", "commit_ts_ms": 99_000,
        "ts_ms": 99_500, "idle": False,
    }  # fmt: skip
    return Watermark(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (None, False),
        ((4, watermark()), False),  # written before the start
        ((5, watermark()), True),
        ((5, watermark(position=(0, 3, 499, 0))), False),
        ((5, watermark(position=(0, 3, 499, 0), idle=True)), True),
        ((5, watermark(position=(0, 12, 4, 0), file="binlog.000012")), True),
        ((5, watermark(snapshot_pending=("bank.a",))), False),
    ],
)
def test_captured(seen: tuple[int, Watermark] | None, expected: bool) -> None:
    assert SourceStart((3, 500), 5).is_captured(seen) is expected


def test_a_unit_without_progress_is_behind() -> None:
    unit = ApplyUnitName("p", "b1", "rowlock.b1.bank.a", "hq")
    assert list_lagging_units({unit: 1}, {}) == [unit]
    assert list_lagging_units({unit: 0}, {}) == []


def test_source_states() -> None:
    assert judge_source("b1", None, 0).state == "new"
    assert judge_source("b1", watermark(), 100_000).state == "running"
    assert judge_source("b1", watermark(), 100_000).lag_seconds == 1.0
    assert judge_source("b1", watermark(idle=True), 100_000).state == "running"
    assert judge_source("b1", watermark(idle=True), 110_000).state == "silent"
    assert judge_source("b1", watermark(error="x"), 100_000).state == "running", "of a table alone"
    assert judge_source("b1", watermark(ended="x"), 100_000).state == "stopped"
    assert judge_source("b1", watermark(ended="x", restarts=True), 100_000).state == "restarting"
    complete = watermark(ended=SNAPSHOT_COMPLETE)
    assert judge_source("b1", complete, 900_000).state == "finished"


def test_displaced_rows_have_a_column_where_there_are_any(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = ApplyUnitStatus("p", "b1", "rowlock.b1.bank.a", "hq", "current")
    drifted = ApplyUnitStatus("p", "b1", "rowlock.b1.bank.b", "hq", "stopped", displaced=4711, reason="a gap")
    make_console().print(build_unit_status_table(Status(1, 0, units=(quiet,))))
    assert "displaced" not in capsys.readouterr().out
    make_console().print(build_unit_status_table(Status(1, 0, units=(quiet, drifted))))
    head, *rows = [
        [cell.strip() for cell in line.split(line[0])]
        for line in capsys.readouterr().out.splitlines()
        if "pipeline" in line or "rowlock.b1" in line
    ]
    at = head.index("displaced")
    assert [row[at] for row in rows] == ["", "4711"]


def test_lag_counts_what_is_there() -> None:
    assert count_lag(-1, OffsetSpan(0, 0)) == 0
    assert count_lag(-1, OffsetSpan(0, 5)) == 5
    assert count_lag(4, OffsetSpan(0, 5)) == 0
    assert count_lag(-1, OffsetSpan(3, 5)) == 2


def test_units_of_a_cluster(config: Path) -> None:
    topics = [
        "rowlock.b1.bank.a",
        "rowlock.b1.watermark",
        "rowlock.b1.position",
        "rowlock.b2.bank.a",
        "rowlock.b1.x.a",
    ]
    assert list_apply_units(load_config(config, {}), topics, usual_tables(topics)) == [
        ApplyUnitName("p", "b1", "rowlock.b1.bank.a", "hq")
    ]
