"""The files that slots on a cluster need: the token by which they prove themselves, and rowlock's package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from consumer.errors import SparkStartError
from schemas.config.spark import MIN_TOKEN_LENGTH, SparkConfig

SAME_TEXT = (
    "put the same long random text, for example of `openssl rand -hex 32`, into the "
    "spark.executor_token_file of the agent's machine and of each executor's"
)
_PRINTABLE = range(0x20, 0x7F)
"""The bytes of printable ASCII characters: gRPC sends no others."""


def read_executor_token(file: Path) -> str:
    """Return the token in `file`, without the white space around it.

    Raises SparkStartError if the file cannot be read, or if its text is too short to be a token or has other
    than printable ASCII characters.
    """
    try:
        token = file.read_bytes().strip()
    except OSError as error:
        raise SparkStartError(
            f"cannot read {file} ({error.strerror}), the token by which slots prove themselves",
            f"{SAME_TEXT}, readable for their users",
        ) from error
    if any(byte not in _PRINTABLE for byte in token):
        raise SparkStartError(f"the token in {file} has other than printable ASCII characters", SAME_TEXT)
    if len(token) < MIN_TOKEN_LENGTH:
        raise SparkStartError(
            f"the token in {file} has {len(token)} characters, and needs {MIN_TOKEN_LENGTH}", SAME_TEXT
        )
    return token.decode("ascii")


def require_package(file: Path) -> None:
    """Raise SparkStartError unless `file`, which is `spark.package`, can be read."""
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise SparkStartError(
            f"cannot read {file} ({error.strerror}), the spark.package for executors",
            f"write it with `rowlock spark package --output {file}`, or leave spark.package out if executors "
            "have rowlock installed",
        ) from error


def list_file_checks(spark: SparkConfig) -> list[Callable[[], object]]:
    """Return a function for each file that a start on a cluster needs. It raises SparkStartError if the file
    cannot be used.
    """
    if not spark.is_cluster:
        return []
    checks: list[Callable[[], object]] = []
    if spark.executor_token_file is not None:
        checks.append(partial(read_executor_token, spark.executor_token_file))
    if spark.package is not None:
        checks.append(partial(require_package, spark.package))
    return checks
