"""Finds a Java that can run Kafka and Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from deploy.errors import EmbeddedError
from schemas.patience import scale_timeout

OLDEST_JAVA = 17
_INSTALL = (
    f"install a Java runtime {OLDEST_JAVA} or newer (Debian: "
    f"openjdk-{OLDEST_JAVA}-jre-headless) and put it on PATH"
)


def find_java() -> Path:
    """Return JAVA_HOME's java, else the first on PATH. Raises EmbeddedError if it is missing or too old."""
    found = _find_candidate()
    if found is None:
        raise EmbeddedError("Java", "no `java` in JAVA_HOME or on PATH; Kafka and Spark need it", _INSTALL)
    version = _read_version(found)
    if version < OLDEST_JAVA:
        raise EmbeddedError(
            "Java", f"{found} is version {version}; Kafka and Spark need {OLDEST_JAVA}", _INSTALL
        )
    return found


def _find_candidate() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        return java if os.access(java, os.X_OK) else None
    on_path = shutil.which("java")
    return Path(on_path) if on_path else None


def _read_version(java: Path) -> int:
    """Return the major version: 8 for "1.8.0_402", 17 for "17.0.15"."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=scale_timeout(30), check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedError("Java", f"{java} does not run ({error})", _INSTALL) from error
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if match is None:
        raise EmbeddedError("Java", f"{java} -version answers {answer.stderr.strip()[:200]!r}", _INSTALL)
    return int(match.group(1))
