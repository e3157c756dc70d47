"""The transfer of a configuration between processes: in an unnamed file through an inherited
descriptor, or as a line.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from schemas.config.changes.text import ConfigText
from schemas.config.load import build_config
from schemas.config.model import Config, load_config

_DECODER = msgspec.json.Decoder(ConfigText)
_BEGINS = b'{"kind":"configuration"'


def is_handed(line: bytes) -> bool:
    """Return whether a line of a process's input is a configuration rather than an instruction."""
    return line.startswith(_BEGINS)


def encode_config(config: Config) -> bytes:
    """Return the configuration's text as one line of JSON. It holds secrets."""
    return msgspec.json.encode(config.made_of)


def announce_config(config: Config) -> None:
    """Write the configuration that is used from now on to stdout, as a line for the parent process."""
    line = msgspec.json.encode(replace(config.made_of, changes=()))
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{line.decode()}\n")
        sys.stdout.flush()


def is_announced_config(line: Mapping[str, Any]) -> bool:
    """Return whether a line on a child's stdout was written by `announce_config`."""
    return line.get("kind") == "configuration"


def decode_announced_config(line: Mapping[str, Any]) -> Config:
    """Return the configuration of an `announce_config` line, without the changes of that command line.

    Raises ConfigErrors.
    """
    return rebuild_config(msgspec.json.encode(line))


def rebuild_config(data: bytes, changes: Mapping[tuple[str, ...], str] | None = None) -> Config:
    """Return the configuration of an `encode_config` line. Raises msgspec.DecodeError, ConfigErrors.

    `changes`: values of this command line; they take precedence over the changes of the process that
    made the line.
    """
    handed = _DECODER.decode(data)
    secrets = handed.secrets

    def read_secret(name: str) -> str:
        if name not in secrets:  # it could not be read there either
            raise FileNotFoundError(2, "it was not there when the configuration was read", name)
        return secrets[name]

    return build_config(
        Path(handed.file), handed.text, os.environ, {**dict(handed.changes), **(changes or {})}, read_secret
    )


def reload_config_file(config: Config) -> Config:
    """Return the configuration that the file of `config` contains now, with the same changes of the
    command line.

    Raises ConfigErrors.
    """
    return load_config(config.path, changes=dict(config.made_of.changes))


def build_with_secrets(config: Config, secrets: Mapping[str, str]) -> Config:
    """Return the same configuration with other texts of its secret files. The configuration's own file is
    not read.

    Raises ConfigErrors.
    """
    return rebuild_config(msgspec.json.encode(replace(config.made_of, secrets=dict(secrets))))


def make_nameless_file(data: bytes) -> int:
    """Return the descriptor of an unnamed file, positioned at its beginning, that a child may inherit.

    The caller closes it.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("rowlock-config", 0)
    else:
        with tempfile.TemporaryFile() as nameless:
            descriptor = os.dup(nameless.fileno())
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def load_handed_config(
    path: Path, descriptor: int | None, changes: Mapping[tuple[str, ...], str] | None = None
) -> Config:
    """Return the configuration that the parent handed over at `descriptor`; None: that of the file.
    Raises ConfigErrors.

    `changes`: values of the command line, which take precedence.
    """
    if descriptor is None:
        return load_config(path, changes=changes)
    with os.fdopen(descriptor, "rb") as handed:
        return rebuild_config(handed.read(), changes)
