"""A Kafka password that is replaced: living clients and later ones log in with it."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import TopicPartition

from producer.main import Orders
from schemas.config.changes.handed import encode_config
from schemas.config.model import load_config
from schemas.io import kafka_clients
from schemas.io.kafka_clients import ClientLog, open_admin, open_consumer, open_producer
from schemas.io.kafka_passwords import KafkaPasswords
from tests.kits.waiting import until

SETTINGS = {
    "bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
    "sasl.username": "u", "sasl.password": "first",
}  # fmt: skip


class Client:
    """A client that notes what it logs in with."""

    def __init__(self, *, closed: bool = False) -> None:
        self.used: list[tuple[str, str]] = []
        self.closed = closed

    def set_sasl_credentials(self, username: str, password: str, /) -> None:
        if self.closed:
            raise RuntimeError("Handle has been closed")
        self.used.append((username, password))


@pytest.fixture
def passwords(monkeypatch: pytest.MonkeyPatch) -> KafkaPasswords:
    made = KafkaPasswords()
    monkeypatch.setattr(kafka_clients, "KAFKA_PASSWORDS", made)
    return made


def test_living_clients_of_the_user_are_given_the_password(passwords: KafkaPasswords) -> None:
    mine, closed, others, elsewhere = Client(), Client(closed=True), Client(), Client()
    passwords.add_client(closed, SETTINGS)
    passwords.add_client(mine, SETTINGS)
    passwords.add_client(others, SETTINGS | {"sasl.username": "v"})
    passwords.add_client(elsewhere, SETTINGS | {"bootstrap.servers": "127.0.0.1:2"})
    for _ in range(2):
        passwords.replace_password("127.0.0.1:1", SETTINGS | {"sasl.password": "second"})
    assert mine.used == [("u", "second")]
    assert (others.used, elsewhere.used) == ([], [])


def test_a_client_that_is_opened_with_earlier_settings_logs_in_with_the_new_one(
    passwords: KafkaPasswords,
) -> None:
    passwords.replace_password("127.0.0.1:1", SETTINGS | {"sasl.password": "second"})
    assert passwords.update_settings(SETTINGS)["sasl.password"] == "second"
    assert SETTINGS["sasl.password"] == "first"
    late = Client()
    passwords.add_client(late, SETTINGS)
    assert late.used == [("u", "second")], "replaced between its settings and its opening"


def test_clients_without_a_password_are_left_alone(passwords: KafkaPasswords) -> None:
    plain = {"bootstrap.servers": "127.0.0.1:1"}
    passwords.add_client(Client(), plain)
    passwords.replace_password("127.0.0.1:1", {})
    assert passwords.update_settings(plain) == plain


@pytest.mark.parametrize("kind", [open_producer, open_admin])
def test_producers_and_administrative_clients_take_it_at_once_and_are_freed(
    kind: Any, passwords: KafkaPasswords, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = kind(SETTINGS, log=ClientLog.SILENT)
    used: list[str] = []
    monkeypatch.setattr(
        type(client), "set_sasl_credentials", lambda _, user, text: used.append(text), raising=False
    )
    passwords.replace_password("127.0.0.1:1", SETTINGS | {"sasl.password": "second"})
    assert used == ["second"]
    del client
    gc.collect()
    assert [len(each) for each in passwords._clients.values()] == [0]


def test_a_consumer_takes_it_while_another_thread_reads(passwords: KafkaPasswords) -> None:
    """The library's call waits for the reading thread, which leaves no gap: it never returned."""
    client = open_consumer(SETTINGS | {"group.id": "g"}, log=ClientLog.SILENT)
    client.assign([TopicPartition("t", 0, 0)])
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            client.consume(1, timeout=0.2)

    new = SETTINGS | {"sasl.password": "second"}
    replacing = threading.Thread(target=passwords.replace_password, args=("127.0.0.1:1", new), daemon=True)
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    replacing.start()
    replacing.join(30)
    assert not replacing.is_alive()
    until(lambda: vars(client).get("_login", "") is None, "the reading thread has used the password")
    ended.set()
    reader.join()
    client.close()


def test_capture_uses_the_password_of_a_handed_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []
    monkeypatch.setattr(
        "schemas.io.kafka_passwords.KAFKA_PASSWORDS.replace_password",
        lambda _, options: used.append(options["sasl.password"]),
    )
    raw = {
        "kafka": {"bootstrap": "127.0.0.1:1", "options": {"sasl.username": "u", "sasl.password": "second"}},
        "sources": {
            "b": {"type": "mariadb", "host": "h", "user": "u", "password": "p", "tables": ["bank.*"]}
        },
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(raw))
    orders = Orders()
    orders.handle_line(encode_config(load_config(tmp_path / "c.yaml")))
    assert used == ["second"]
    assert not orders.go.is_set()
