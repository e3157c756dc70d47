"""Each command with `--output json` prints JSON alone, and each of its objects has the contract's
version."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from click import Group
from click.testing import CliRunner

from coordinator.server.operators.copies import CopyRow
from rowlock.cli import main
from rowlock.inspect.planned.plan import RunPlan
from rowlock.inspect.scopes import FindingScope, attach_scope
from rowlock.inspect.status import Status
from rowlock.views.retention import Backlog, RetentionLimits
from schemas.findings import Finding
from tests.formats.listings import STRUCTURES
from tests.formats.samples import sample
from tests.kits.command_line import serve_control
from tests.stands.fake_control import FakeControl

CONFIG = """\
kafka: {{bootstrap: "127.0.0.1:1"}}
sources:
  b1: {{type: mariadb, host: 127.0.0.1, port: 1, user: u, password: x, tables: [bank.*]}}
coordination: {{rest: "{rest}", coordinators: ["127.0.0.1:1"]}}
"""
#: Command → what it prints: the names of its object's first members.
PRINTED = {
    ("check",): ["findings", "headroom"],
    ("check", "--plan"): ["tables"],
    ("status",): ["sources", "units"],
    ("verify",): ["rows", "equal", "differences"],
    ("quarantine", "list"): ["held", "displaced"],
    ("quarantine", "list", "--resolved"): ["resolved"],
    ("units", "list"): ["units"],
    ("agents", "list"): ["agents"],
    ("pipelines", "list"): ["pipelines"],
    ("events",): ["events"],
    ("cutover", "--sql"): ["columns"],
    ("copy",): ["copies"],
    ("copy", "bank.acct"): ["accepted"],
    ("copy", "bank.acct", "--wait"): ["copies"],
    ("copy", "bank.acct", "--cancel"): ["accepted"],
    ("copy", "bank.acct", "--rate-only"): ["accepted"],
    ("reload",): ["digest", "changes"],
}
_SAMPLES = {case.name: case.instance for structure in STRUCTURES for case in structure.cases}
_DONE = CopyRow(
    "b1", "bank.acct", "7f3c", "done", "operator", "", None, 7, 7, 1, 2, 3, 0, "",
)  # fmt: skip


def list_with_json(group: Group = main, *path: str) -> set[tuple[str, ...]]:
    """Return the commands that print JSON with `--output json`."""
    found: set[tuple[str, ...]] = set()
    for name, command in group.commands.items():
        if isinstance(command, Group):
            found |= list_with_json(command, *path, name)
        elif any(
            "--output" in each.opts and "json" in getattr(each.type, "choices", ()) for each in command.params
        ):
            found.add((*path, name))
    return found


@pytest.fixture(autouse=True)
def _own_structlog() -> object:
    yield
    structlog.reset_defaults()


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeControl]:
    """Yield the leader of a system whose parts answer every question with something in it."""

    class Reader:
        def __init__(self, _: object) -> None: ...

        def read_status(self) -> Status:
            return Status(1, 0)

        def close(self) -> None: ...

    answers: dict[str, Callable[..., Any]] = {
        "check.list_scoped_findings": lambda _: attach_scope(FindingScope.EVERYTHING, "", [sample(Finding)]),
        "headroom.measure_headroom": lambda *_: (
            [Backlog("source b1", "its log", RetentionLimits(7200.0, "days"), 1.0, "capture")],
            [],
        ),
        "planned.stored.read_run_plan": lambda _: replace(sample(RunPlan), asked=None),
        "status.StatusReader": Reader,
        "cutover.list_databases": lambda _: ["hq"],
        "cutover.list_numbered_columns": lambda *_: [],
        "verify.verify_pairs": lambda *_, **__: [_SAMPLES["result"]] * 2,
        "quarantine.list_quarantined_events": lambda _: [_SAMPLES["held"]],
        "quarantine.list_resolved_events": lambda *_: [_SAMPLES["resolved"]],
        "observed.displaced.list_displaced_rows": lambda _: [_SAMPLES["displaced"]],
    }
    for name, answer in answers.items():
        monkeypatch.setattr(f"rowlock.inspect.{name}", answer)
    monkeypatch.setattr("rowlock.commands.compared_pairs.choose_pairs", lambda *_: ["a pair"])
    monkeypatch.setattr("rowlock.commands.copying.yield_unsupported_servers", lambda *_: ())
    monkeypatch.setattr("rowlock.commands.copying._wait_until_applied", lambda *_: True)
    control = FakeControl()
    control.desk.known = [_DONE]
    control.record_event("unit moved", {"unit": "capture/b1"})
    with serve_control(control) as rest:
        (tmp_path / "rowlock.yaml").write_text(CONFIG.format(rest=rest))
        monkeypatch.chdir(tmp_path)
        yield control


def test_each_command_with_json_is_tried() -> None:
    tried = {words for command in PRINTED for words in (command, command[:1])}
    assert list_with_json() <= tried


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("words", PRINTED, ids=" ".join)
def test_each_json_object_has_the_version(words: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(main, [*words, "--output", "json"])
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.output
    assert ended.exit_code in {0, 1}, ended.output
    printed = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(printed) == (2 if words == ("verify",) else 1)
    for each in printed:
        assert each["version"] == 1
        assert set(PRINTED[words]) <= set(each)


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("words", PRINTED, ids=" ".join)
def test_the_same_commands_print_no_json_without_it(words: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(main, words)
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.output
    assert ended.exit_code in {0, 1}, ended.output
    assert ended.stdout
    assert "{" not in ended.stdout
