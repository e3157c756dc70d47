"""A second `rowlock run` where one runs already ends before it has started anything, and not the first one
with it."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
import yaml

from rowlock.errors import CommandError
from rowlock.processes import run
from rowlock.processes.run import await_addresses
from schemas.config.model import Config, load_config


def config_with(folder: Path, **coordination: str) -> Config:
    file = folder / "rowlock.yaml"
    source = {"type": "mariadb", "host": "127.0.0.1", "user": "u", "password": "", "tables": ["a.*"]}
    parts = {"kafka": {"bootstrap": "127.0.0.1:1"}, "sources": {"b1": source}}
    file.write_text(yaml.safe_dump(parts | ({"coordination": coordination} if coordination else {})))
    return load_config(file)


@pytest.mark.parametrize("which", ["listen", "rest"])
def test_an_address_that_is_taken_refuses_the_run(tmp_path: Path, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        config = config_with(tmp_path, **{"listen": "127.0.0.1:0", "rest": "127.0.0.1:0", which: address})
        with pytest.raises(CommandError, match=f"{address}.*another `rowlock run`"):
            await_addresses(config, 0)


def test_one_that_has_just_ended_is_waited_for(tmp_path: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{server.getsockname()[1]}"
    timer = threading.Timer(0.5, server.close)
    timer.start()
    await_addresses(config_with(tmp_path, listen=address, rest="127.0.0.1:0"), 120)
    timer.join()


def test_without_addresses_of_its_own_a_run_takes_free_ones(tmp_path: Path) -> None:
    await_addresses(config_with(tmp_path), 0)


def test_a_run_beside_another_one_takes_two_free_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        ports = {int(each.rpartition(":")[2]) for each in run._free_addresses(f"127.0.0.1:{taken}")}
    assert len(ports - {taken}) == 2
    assert min(ports) >= 1024, "another one of the system's ports is the services'"
