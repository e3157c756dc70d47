"""Which configuration file a command takes, and what the commands need that it prints."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NoReturn

import pytest
import structlog
from click import Command, Group
from click.testing import CliRunner, Result

from coordinator.control.codec import Candidate
from rowlock.cli import main
from rowlock.commands.needed_report import format_needed_changes
from rowlock.errors import CommandError
from rowlock.inspect.scopes import FindingScope, ScopedFinding, attach_scope
from rowlock.processes.run import build_agent_name, build_run_commands
from rowlock.views.retention import Backlog
from schemas.config.model import Config
from schemas.findings import START_OVER, Finding, format_copy_remedy

CONFIG = """\
kafka: {{bootstrap: "127.0.0.1:1", prefix: {prefix}}}
sources:
  b1: {{type: mariadb, host: 127.0.0.1, port: 1, user: u, password: topsecret, tables: [bank.*]}}
coordination: {{rest: "127.0.0.1:1", coordinators: ["127.0.0.1:1"]}}
"""
WITHOUT_CONFIG = {"demo", "init", "docs", "completion", "spark"}
READING = {
    "check", "status", "verify", "quarantine list", "cutover", "units list", "agents list", "pipelines list",
    "events", "copy",
}  # fmt: skip
LOGGING = {"coordinator", "agent"}
"""Commands with the log of a service on stderr."""
REMEDY = format_copy_remedy("bank", "acct")


@pytest.fixture(autouse=True)
def _own_structlog() -> object:
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, which has no configuration; the environment names none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROWLOCK_CONFIG", raising=False)
    return tmp_path


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Yield the Kafka prefixes of the configurations that `check` has read; it finds one remedy each time."""
    prefixes: list[str] = []

    def list_scoped_findings(config: Config) -> list[ScopedFinding]:
        prefixes.append(config.kafka.prefix)
        found = Finding("warning", "source b1, table bank.acct", "it lacks rows", REMEDY)
        return attach_scope(FindingScope.TABLE, "b1", [found])

    monkeypatch.setattr("rowlock.inspect.check.list_scoped_findings", list_scoped_findings)
    monkeypatch.setattr("rowlock.inspect.headroom.measure_headroom", lambda *_: ([], []))
    monkeypatch.setattr("rowlock.inspect.headroom.list_short_logs", lambda *_: [])
    monkeypatch.setattr("rowlock.coordinator.control_view.find_living_leader", lambda _: None)
    return prefixes


def write_config(name: str, prefix: str) -> str:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(CONFIG.format(prefix=prefix))
    return name


def invoke(*words: str, variable: str | None = None) -> Result:
    return CliRunner().invoke(main, words, env={"ROWLOCK_CONFIG": variable})


def list_commands(group: Group = main, *path: str) -> list[tuple[str, ...]]:
    """Return the words of each command that reads a configuration, with arguments for it."""
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        if name in WITHOUT_CONFIG:
            continue
        if isinstance(command, Group):
            found += list_commands(command, *path, name)
        else:
            found.append((*path, name, *list_required_words(command)))
    return found


def list_required_words(command: Command) -> list[str]:
    return [
        word
        for each in command.params
        if each.required
        for word in ([each.opts[0], "x"] if each.opts[0].startswith("-") else ["x"])
    ]


@pytest.mark.parametrize("words", list_commands(), ids=" ".join)
def test_a_command_without_a_configuration_names_what_is_looked_for(
    words: tuple[str, ...], folder: Path
) -> None:
    ended = invoke(*words)
    assert (ended.exit_code, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("rowlock: there is no configuration: ")
    for looked_for in ("-c FILE", "ROWLOCK_CONFIG", f"{folder}/rowlock.yaml"):
        assert looked_for in line
    example = Path(line.partition("(an example: ")[2].rstrip(")"))
    assert example.read_text().startswith("# A complete configuration of rowlock")


@pytest.mark.parametrize("words", list_commands(), ids=" ".join)
def test_a_command_reads_rowlock_yaml_in_the_current_folder(words: tuple[str, ...]) -> None:
    Path("rowlock.yaml").write_text("kafka: 3\n")
    answer = ["--yes"] if "skip" in words else ["--sql"] if "cutover" in words else []
    ended = invoke(*words, *answer)
    assert ended.exit_code == 2
    assert ended.stderr.startswith("rowlock: rowlock.yaml:1: kafka: ")


def test_an_option_precedes_the_variable_and_that_the_file_in_the_folder(checked: list[str]) -> None:
    write_config("rowlock.yaml", "in_folder")
    variable, option = write_config("a/v.yaml", "by_variable"), write_config("o.yaml", "by_option")
    assert invoke("check").exit_code == 0
    assert invoke("check", variable=variable).exit_code == 0
    assert invoke("check", "-c", option, variable=variable).exit_code == 0
    assert invoke("check", variable="").exit_code == 0
    assert checked == ["in_folder", "by_variable", "by_option", "in_folder"]


def test_a_missing_file_is_reported_with_who_named_it() -> None:
    write_config("rowlock.yaml", "in_folder")
    by_variable = invoke("check", variable="nosuch.yaml")
    assert (by_variable.exit_code, by_variable.stdout) == (2, "")
    assert by_variable.stderr == (
        "rowlock: ROWLOCK_CONFIG names the configuration nosuch.yaml, which does not exist; correct "
        "ROWLOCK_CONFIG, or give -c FILE\n"
    )
    by_option = invoke("check", "-c", "nosuch.yaml")
    assert by_option.exit_code == 2
    assert "ROWLOCK_CONFIG" not in by_option.stderr
    assert "nosuch.yaml: cannot be read: " in by_option.stderr


@pytest.mark.parametrize("here", [True, False])
def test_run_warns_of_a_running_system_that_it_would_join(
    monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    """A second folder with the same Kafka and prefix is easily made."""
    name = build_agent_name() if here else "another"
    leader = Candidate(name, "h:1", "h:2")
    monkeypatch.setattr("rowlock.coordinator.control_view.find_living_leader", lambda _: leader)
    monkeypatch.setattr("rowlock.processes.run.run_processes", lambda *_, **__: 0)
    ran = invoke("run", "-c", write_config("rowlock.yaml", "mine"))
    assert ran.exit_code == 0, ran.output
    assert (
        f"warning: a system with the prefix mine runs on this Kafka: coordinator {name} leads it"
        in ran.stderr
    )
    assert ("takes over the units of that run's agent" in ran.stderr) is here
    assert ("joins that system" in ran.stderr) is not here


@pytest.mark.parametrize("variable", [None, "v.yaml"])
def test_processes_of_a_run_get_the_file_that_run_has_found(
    variable: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write_config(variable or "rowlock.yaml", "p")
    started: list[list[str]] = []

    def run(config: Config, *_: object, **__: object) -> int:
        started.extend(build_run_commands(config).values())
        return 0

    monkeypatch.setattr("rowlock.cli._check_before_start", lambda *_, **__: [])
    monkeypatch.setattr("rowlock.processes.run.run_processes", run)
    assert invoke("run", variable=variable).exit_code == 0
    assert [command[command.index("-c") + 1] for command in started] == [str(folder / name)] * 2


def test_a_printed_command_works_as_it_is_if_no_option_was_needed() -> None:
    for variable, words in ((None, ()), ("rowlock.yaml", ()), (None, ("-c", "./rowlock.yaml"))):
        write_config("rowlock.yaml", "p")
        shown = invoke("check", *words, variable=variable)
        assert REMEDY in shown.stdout
        assert shown.stderr == ""


def test_the_option_that_printed_commands_need_is_shown_once() -> None:
    write_config("rowlock.yaml", "p")
    other = write_config("a b.yaml", "other")
    shown = invoke("check", "-c", other)
    assert REMEDY in shown.stdout
    assert shown.stderr == "rowlock: add -c 'a b.yaml' to the commands above\n"
    assert invoke("check", "-c", other, variable="a b.yaml").stderr == ""
    assert invoke("check", "-c", other, "--output", "json").stderr == "", "a program reads it"


def test_an_error_that_names_a_command_shows_the_option_too(monkeypatch: pytest.MonkeyPatch) -> None:
    other = write_config("other.yaml", "other")
    monkeypatch.setattr("rowlock.coordinator.leader_client.UNHEARD_S", 0.0)
    monkeypatch.setattr("rowlock.coordinator.control_view.find_leader_address", lambda _: None)
    ended = invoke("units", "list", "-c", other)
    assert ended.exit_code == 2
    assert "start `rowlock coordinator`" in ended.stderr
    assert ended.stderr.splitlines()[-1] == "rowlock: add -c other.yaml to the commands above"


@pytest.mark.parametrize("remedy", ["create it, or let rowlock create it", START_OVER])
def test_no_option_is_shown_for_texts_without_commands_that_need_it(
    remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Finding("warning", "target hq", "the table is missing", remedy)
    scoped = attach_scope(FindingScope.TARGET, "hq", [found])
    monkeypatch.setattr("rowlock.inspect.check.list_scoped_findings", lambda _: scoped)
    assert invoke("check", "-c", write_config("other.yaml", "other")).stderr == ""


def test_each_server_gets_its_own_statements_although_another_part_has_its_name() -> None:
    def find(scope: FindingScope, place: str, right: str) -> ScopedFinding:
        return ScopedFinding(Finding("error", place, "no", f"GRANT {right} TO u;"), scope, "b1")

    found = [
        find(FindingScope.SOURCE, "source b1", "A"),
        find(FindingScope.TARGET, "rowlock.yaml:7", "B"),
        find(FindingScope.TABLE, "source b1, table bank.acct", "C"),
        find(FindingScope.TABLE, "target table public.acct", "D"),
        find(FindingScope.PIPELINE, "pipeline b1", "E"),
    ]
    config: Any = SimpleNamespace(sources={"b1": 0}, targets={"b1": 0})
    assert format_needed_changes(config, found) == [
        "source b1 needs, from an administrator:", "  GRANT A TO u;", "  GRANT C TO u;",
        "target b1 needs, from an administrator:", "  GRANT B TO u;", "  GRANT D TO u;",
    ]  # fmt: skip


def test_check_with_warnings_only_ends_with_a_verdict() -> None:
    result = invoke("check", "-c", write_config("other.yaml", "other"))
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "only warnings: ready to run")


def test_check_prints_one_block_of_settings_below_its_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    remedies = ("SET GLOBAL x = 1; and set it in the server's configuration", "GRANT A TO u;")
    found = attach_scope(
        FindingScope.SOURCE, "b1", [Finding("error", "source b1", "no", each) for each in remedies]
    )
    monkeypatch.setattr("rowlock.inspect.check.list_scoped_findings", lambda _: found)
    shown = invoke("check", "-c", write_config("other.yaml", "other")).stdout
    assert "source b1 needs, from an administrator:\n  GRANT A TO u;\nsource b1: write this into" in shown
    assert "\n  [mysqld]\n  x = 1\nsource b1: no restart is needed" in shown
    assert shown.endswith("  SET GLOBAL x = 1;\n")


def list_changing_commands() -> list[tuple[str, ...]]:
    """Return the words of each command that changes something, with answers to its questions."""
    commands = [each for each in list_commands() if not {" ".join(each), each[0]} & (READING | LOGGING)]
    more = [("copy", "bank.acct"), ("copy", "bank.acct", "--cancel"), ("copy", "bank.acct", "--rate-only")]
    return [(*each, "--yes") if "skip" in each else each for each in commands + more]


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Yield the Kafka prefixes of the configurations with which a change has begun; each fails then."""
    prefixes: list[str] = []

    def fail(config: Config, *_: object, **__: object) -> NoReturn:
        prefixes.append(config.kafka.prefix)
        raise CommandError("it cannot be changed")

    monkeypatch.setattr("rowlock.coordinator.leader_client.LeaderClient.from_config", fail)
    monkeypatch.setattr("rowlock.inspect.quarantine.resolve_quarantine", fail)
    monkeypatch.setattr("rowlock.inspect.check.list_scoped_findings", fail)
    monkeypatch.setattr("rowlock.commands.copying.yield_unsupported_servers", lambda *_: ())
    return prefixes


@pytest.mark.parametrize("words", list_changing_commands(), ids=" ".join)
def test_a_command_that_changes_something_names_its_configuration(
    words: tuple[str, ...], folder: Path, changed: list[str]
) -> None:
    write_config("rowlock.yaml", "in_folder")
    variable, failed = write_config("a/prod.yaml", "by_variable"), "rowlock: it cannot be changed\n"
    ended = invoke(*words, variable=variable)
    assert ended.stderr == f"rowlock: using {folder}/a/prod.yaml (ROWLOCK_CONFIG)\n{failed}"
    assert invoke(*words).stderr == f"rowlock: using {folder}/rowlock.yaml (the current folder)\n{failed}"
    assert invoke(*words, "-c", variable, variable=variable).stderr == failed
    assert changed == ["by_variable", "in_folder", "by_variable"]


def test_the_question_before_a_skip_names_the_configuration_and_the_target(
    folder: Path, changed: list[str]
) -> None:
    targets = """\
targets:
  hq: {type: postgres, host: hq.bank, port: 5433, user: u, password: x, database: d}
  feed: {type: kafka, bootstrap: "k1:9092"}
pipelines: {p: {sources: [b1], target: hq}, q: {sources: [b1], target: feed}}
"""
    (folder / "prod.yaml").write_text(CONFIG.format(prefix="p") + targets)
    asked = invoke("quarantine", "skip", variable="prod.yaml")
    assert (
        f"By {folder}/prod.yaml, the held events of target hq at hq.bank:5433, target feed at k1:9092 "
        in (asked.stdout)
    )
    assert "target feed" not in invoke("quarantine", "skip", "--pipeline", "p", "-c", "prod.yaml").stdout
    assert changed == []


@pytest.mark.parametrize(
    ("scope", "level", "measured"),
    [
        (FindingScope.KAFKA, "error", 0),
        (FindingScope.EVERYTHING, "error", 1),
        (FindingScope.EVERYTHING, "warning", 1),
    ],
    ids=["no answer", "another error of that line", "a warning"],
)
def test_check_measures_no_headroom_if_kafka_does_not_answer(
    scope: FindingScope,
    level: Literal["error", "warning"],
    measured: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second question would wait for Kafka as long as the first, and find nothing. An error of a broker's
    certificate names the same line, and is no reason not to ask."""
    asked: list[Config] = []

    def find(config: Config) -> list[ScopedFinding]:
        place = config.find_line("kafka", "bootstrap")
        found = Finding(level, place, "Kafka does not answer", "start the broker")
        return attach_scope(scope, "", [found])

    def measure(config: Config, _: object) -> tuple[list[Backlog], list[Finding]]:
        asked.append(config)
        return [], []

    monkeypatch.setattr("rowlock.inspect.check.list_scoped_findings", find)
    short = Finding("warning", "source b1", "its log is kept for 60 s only", "keep it longer")
    monkeypatch.setattr("rowlock.inspect.headroom.measure_headroom", measure)
    monkeypatch.setattr("rowlock.inspect.headroom.list_short_logs", lambda *_: [short])
    ended = invoke("check", "-c", write_config("one.yaml", "rowlock"))
    assert ended.exit_code == (1 if level == "error" else 0), ended.output
    assert "Kafka does not answer" in ended.stdout
    assert len(asked) == measured
    assert ("kept for 60 s only" in ended.stdout) == (not measured), "a source's log needs no Kafka"
