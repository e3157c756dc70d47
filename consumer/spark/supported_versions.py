"""The versions of Spark with which rowlock works, and the version of the installed PySpark."""

from __future__ import annotations

import importlib.metadata

from consumer.errors import SparkVersionError
from schemas.versions import parse_version

OLDEST = (4, 0)
"""The oldest minor version of Spark that is tested."""
NEWEST = (4, 3)
"""The newest one."""
REQUIREMENT = f"pyspark>={OLDEST[0]}.{OLDEST[1]}.0,<{NEWEST[0]}.{NEWEST[1] + 1}"
"""The requirement of setup.cfg."""
_RANGE = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"


def require_supported_spark() -> str:
    """Return the version of the installed PySpark. Imports nothing of it.

    Raises SparkVersionError if rowlock was not tested with its minor version.
    """
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise SparkVersionError("PySpark is not installed", f"pip install '{REQUIREMENT}'") from None
    if not OLDEST <= parse_version(version) <= NEWEST:
        raise SparkVersionError(
            f"PySpark {version} is installed, and rowlock works with {_RANGE}",
            f"pip install '{REQUIREMENT}'",
        )
    return version


def format_minor_version(version: str) -> str:
    """Return "4.1" for "4.1.4": a cluster must have the minor version of the agent's PySpark."""
    return ".".join(map(str, parse_version(version)))
