"""A password that is changed in its file is used without a reload; an edited configuration file is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from rowlock.agent.run import AgentConfiguration
from rowlock.coordinator.run import ActiveConfiguration
from rowlock.secret_files import SecretFiles, follow_secret_files
from schemas.config.model import Config, load_config
from tests.kits.waiting import until

RAW: dict[str, Any] = {
    "kafka": {"bootstrap": "127.0.0.1:1", "options": {"sasl.password_file": "kafka"}},
    "sources": {
        "b": {"type": "mariadb", "host": "h", "user": "u", "password_file": "pw", "tables": ["bank.*"]}
    },
}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "pw").write_text("first\n")
    (tmp_path / "kafka").write_text("broker's\n")
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(RAW))
    return load_config(tmp_path / "c.yaml")


def password(config: Config) -> str:
    return config.sources["b"].password.get_secret_value()


class Followed:
    """The secret files of a configuration that an agent holds; `used`: what its workers were given."""

    def __init__(self, config: Config) -> None:
        self.used: list[Config] = []
        self.file = AgentConfiguration(config, self.used.append)
        self.files = SecretFiles(lambda: self.file.config, self.file.replace_secrets)

    def poll(self, times: int = 2) -> list[dict[str, Any]]:
        with structlog.testing.capture_logs() as lines:
            for _ in range(times):
                self.files.poll_files()
        return [dict(line) for line in lines]


def test_an_agent_uses_a_new_password_after_two_equal_readings(config: Config, tmp_path: Path) -> None:
    followed = Followed(config)
    assert (followed.poll(), followed.used) == ([], [])
    (tmp_path / "pw").write_text("seco")  # someone is writing it
    assert (followed.poll(1), followed.used) == ([], [])
    (tmp_path / "pw").write_text("second\n")
    assert (followed.poll(1), followed.used) == ([], [])
    (line,) = followed.poll(3)
    assert line["event"] == "secrets of changed files used"
    assert line["changes"] == ["sources.b.password: another value"]
    assert [password(each) for each in followed.used] == ["second"]
    assert password(followed.file.config) == "second"


def test_an_edited_configuration_file_still_waits_for_a_reload(config: Config, tmp_path: Path) -> None:
    followed = Followed(config)
    (tmp_path / "c.yaml").write_text("half an edit: [")
    (tmp_path / "pw").write_text("second")
    followed.poll()
    assert password(followed.file.config) == "second"
    assert followed.file.config.sources["b"].tables == config.sources["b"].tables


def test_a_missing_file_is_reported_once_and_changes_nothing(config: Config, tmp_path: Path) -> None:
    followed = Followed(config)
    (tmp_path / "pw").unlink()
    (line,) = followed.poll(5)
    assert (line["log_level"], followed.used) == ("error", [])
    assert "No such file" in line["error"]
    (tmp_path / "pw").write_text("second")
    followed.poll()
    assert [password(each) for each in followed.used] == ["second"]
    (tmp_path / "pw").unlink()
    assert len(followed.poll()) == 1


def test_an_empty_file_is_no_password(config: Config, tmp_path: Path) -> None:
    followed = Followed(config)
    (tmp_path / "pw").write_text("\n")
    (line,) = followed.poll(5)
    assert (line["log_level"], followed.used) == ("error", [])
    assert "pw is empty" in line["error"]


def test_a_new_password_of_kafka_is_used_by_clients_that_exist(config: Config, tmp_path: Path) -> None:
    """That they log in with it: tests/unit/test_kafka_passwords.py."""
    followed = Followed(config)
    (tmp_path / "kafka").write_text("new")
    (line,) = followed.poll()
    assert (line["event"], line["log_level"]) == ("secrets of changed files used", "info")
    assert [each.kafka.options["sasl.password"] for each in followed.used] == ["new"]


def test_other_secrets_of_kafka_need_a_restart_and_that_is_reported(tmp_path: Path) -> None:
    option = "ssl.key.password"
    raw = RAW | {"kafka": {"bootstrap": "127.0.0.1:1", "options": {f"{option}_file": "kafka"}}}
    (tmp_path / "pw").write_text("first\n")
    (tmp_path / "kafka").write_text("broker's\n")
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(raw))
    followed = Followed(load_config(tmp_path / "c.yaml"))
    (tmp_path / "kafka").write_text("new")
    _, warning = followed.poll()
    assert warning["log_level"] == "warning"
    assert f"kafka.options.{option}" in warning["changes"][0]
    assert "restart" in warning["changes"][0]


def test_a_password_of_a_kafka_target_asks_for_a_reload(tmp_path: Path) -> None:
    """It is in the digest by which agents of all versions compare configurations."""
    target = {"type": "kafka", "bootstrap": "127.0.0.1:1", "prefix": "feed",
              "options": {"sasl.username": "u", "sasl.password_file": "target"}}  # fmt: skip
    raw = RAW | {"targets": {"t": target}, "pipelines": {"p": {"sources": ["b"], "target": "t"}}}
    for name in ("pw", "kafka", "target"):
        (tmp_path / name).write_text("first\n")
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(raw))
    followed = Followed(load_config(tmp_path / "c.yaml"))
    (tmp_path / "target").write_text("second")
    _, warning = followed.poll()
    assert (warning["log_level"], warning["remedy"]) == ("warning", "rowlock reload, else new tables wait")


def test_a_reload_that_came_first_wins(config: Config, tmp_path: Path) -> None:
    followed = Followed(config)
    (tmp_path / "pw").write_text("second")
    reloaded = load_config(tmp_path / "c.yaml")
    assert followed.file.adopt_config(followed.file.digest)
    assert not followed.file.replace_secrets(config, reloaded)
    assert followed.poll() == []


def test_a_coordinator_passes_it_on(config: Config, tmp_path: Path) -> None:
    seen: list[tuple[str, set[str]]] = []
    announced: list[str] = []
    held = ActiveConfiguration(
        config,
        [lambda found, parts: seen.append((password(found), set(parts)))],
        lambda found: announced.append(password(found)),
    )
    (tmp_path / "pw").write_text("second")
    with follow_secret_files(lambda: held.config, held.replace_secrets, poll_s=0.01):
        until(lambda: seen, "the new password")
    assert seen == [("second", {"source/b"})]
    assert announced == ["second"]
    assert password(held.config) == "second"


def test_an_error_does_not_end_the_thread(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    polls: list[int] = []

    def fail(_: SecretFiles) -> None:
        polls.append(1)
        raise RuntimeError("broken")

    monkeypatch.setattr(SecretFiles, "poll_files", fail)
    with follow_secret_files(lambda: config, lambda used, found: True, poll_s=0.01):
        until(lambda: len(polls) > 2, "further readings")
