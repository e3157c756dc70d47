"""Prometheus' own checker: `promtool` of the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REQUIRE = "ROWLOCK_REQUIRE_PROMTOOL"


def run_promtool(*words: str, stdin: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `promtool` with `words`. Without it the test is skipped, or fails if the machine must have it."""
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get(REQUIRE):
            pytest.fail(f"promtool is missing, and {REQUIRE} is set; Debian has it in the package prometheus")
        pytest.skip("promtool is not installed")
    return subprocess.run(
        [found, *words], input=stdin, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
