"""The texts that show a newcomer what there is: `rowlock` alone, `--help`, and the completion of a shell."""

from __future__ import annotations

import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest
from click import Command, Group
from click.testing import CliRunner

from rowlock.cli import main
from rowlock.commands.help import START_HERE, CommandGroup, read_summary
from schemas.config.kinds.sources import SOURCE_KINDS
from schemas.config.kinds.targets import TARGET_KINDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "cli.md"
#: Type in the configuration → name of the product.
PRODUCTS = {
    "mysql": "MySQL", "mariadb": "MariaDB", "postgres": "PostgreSQL", "oracle": "Oracle", "kafka": "Kafka",
}  # fmt: skip


def list_all(group: Group = main, path: str = "rowlock") -> list[tuple[str, Command]]:
    """Return groups and commands, each with the words that call it."""
    found: list[tuple[str, Command]] = [(path, group)]
    for name, command in group.commands.items():
        inner = f"{path} {name}"
        found += list_all(command, inner) if isinstance(command, Group) else [(inner, command)]
    return found


def show(*words: str, **more: str) -> str:
    ended = CliRunner().invoke(main, words, env=more, prog_name="rowlock")
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def squeeze(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(("path", "command"), list_all(), ids=lambda each: each if type(each) is str else "")
def test_each_command_begins_with_one_plain_sentence(path: str, command: Command) -> None:
    summary = read_summary(command)
    assert re.fullmatch(r"[A-Z][a-z]+,? [^.!?:]+\.", summary), f"{path}: {summary}"
    assert len(summary) <= 120, f"{path}: {summary}"


@pytest.mark.parametrize(("path", "group"), [each for each in list_all() if isinstance(each[1], Group)])
def test_help_shows_the_sentence_of_each_command_whole(path: str, group: Group) -> None:
    shown = squeeze(show(*path.split()[1:], "--help"))
    for name, command in group.commands.items():
        assert f" {name} {read_summary(command)}" in shown
    assert "..." not in shown.replace("[ARGS]...", "")


def test_help_has_each_command_under_one_title() -> None:
    assert isinstance(main, CommandGroup)
    assert list(main.chapters) == [START_HERE, "Inspect and repair", "Cluster"]
    listed = [name for names in main.chapters.values() for name in names]
    assert sorted(listed) == sorted(main.commands)
    shown = show("--help")
    titles = [f"\n{title}:\n" for title in main.chapters]
    assert sorted(titles, key=shown.index) == titles
    assert "\nCommands:" not in shown


def test_rowlock_alone_shows_where_to_begin() -> None:
    shown = show()
    for name in ("demo", "check", "run", "status"):
        assert f"rowlock {name} {read_summary(main.commands[name])}" in squeeze(shown)
    assert "rowlock --help Show all commands." in squeeze(shown)
    assert "coordinator" not in shown
    assert len(shown.splitlines()) <= 20
    assert show("--log-level", "debug") == shown


def test_descriptions_name_each_kind_of_source_and_target() -> None:
    package = ConfigParser()
    package.read(ROOT / "setup.cfg")
    for text in (read_summary(main), package["metadata"]["description"]):
        sources, targets = text.split(" through Kafka into ")
        assert {word for word in PRODUCTS.values() if word in sources} == {PRODUCTS[k] for k in SOURCE_KINDS}
        assert {word for word in PRODUCTS.values() if word in targets} == {PRODUCTS[k] for k in TARGET_KINDS}


def test_the_name_of_a_coordinator_is_not_called_an_agents() -> None:
    shown = squeeze(show("coordinator", "--help"))
    assert "--name TEXT Name of this coordinator in the cluster" in shown


def test_the_reference_has_the_commands_under_the_same_titles() -> None:
    page = PAGE.read_text()
    assert isinstance(main, CommandGroup)
    parts = re.split(r"^\| \*\*(.+)\*\* \| \| \|$", page, flags=re.MULTILINE)
    shown = {
        title: list(dict.fromkeys(re.findall(r"^\| `rowlock ([a-z-]+)", part, re.MULTILINE)))
        for title, part in zip(parts[1::2], parts[2::2], strict=True)
    }
    assert shown == {title: list(names) for title, names in main.chapters.items()}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_asks_rowlock(shell: str) -> None:
    script = show("completion", shell)
    assert f"_ROWLOCK_COMPLETE={shell}_complete" in script
    assert "rowlock" in script
    checker = shutil.which(shell)
    if checker is not None:
        subprocess.run([checker, "-n"], input=script, text=True, check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_the_script() -> None:
    script = show("completion", "bash")
    registered = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\ncomplete -p rowlock"], capture_output=True, text=True, check=True
    )
    assert registered.stdout.split()[-1] == "rowlock"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rowlock sta", ["status"]),
        ("rowlock units ", ["cancel", "list", "move", "pause", "resume"]),
        ("rowlock status --o", ["--output"]),
        ("rowlock completion ", ["bash", "zsh", "fish"]),
        ("rowlock status --output ", ["table", "json"]),
    ],
)
def test_words_are_completed_without_a_configuration(
    line: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = line.split(" ")
    asked = {"_ROWLOCK_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    assert [each.partition(",")[2] for each in show(**asked).splitlines()] == expected


def test_the_reference_describes_completion() -> None:
    page = PAGE.read_text()
    assert 'eval "$(rowlock completion bash)"' in page
    assert r"rowlock completion fish \| source" in page
