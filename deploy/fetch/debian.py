"""Servers from Debian's suites, each in a root file system of its own.

They are published nowhere that pip or Ivy could fetch them from, so they are installed with debootstrap: only
as root, on a machine with apt settings for a Debian mirror. The mirror is taken from these.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deploy.errors import EmbeddedError
from deploy.fetch.cache import cache_dir
from deploy.fetch.progress import measure_folder_size, watch_process
from deploy.guard.guardian import kill_tree
from deploy.guard.processes import release_process, spawn_process


def explain_no_debian_root(server: str, root: str) -> str | None:
    """Return why this machine cannot have `server` in the cache's folder `root`; None: it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return f"{server} needs root on Linux: it is installed with debootstrap and run in a chroot"
    if (cache_dir() / root).is_dir():
        return None
    if shutil.which("debootstrap") is None:
        return f"{server} needs debootstrap, which is not installed (apt-get install debootstrap)"
    return None if _find_mirror() else f"{server} needs a Debian mirror in apt's settings, and there is none"


def install_debian_root(staging: Path, server: str, packages: str, size: int, suite: str = "sid") -> None:
    """Install packages (names with commas) into a new root file system of `size` bytes."""
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--include={packages}",
        suite,
        str(staging),
        _find_mirror(),
    ]
    with tempfile.NamedTemporaryFile(prefix="rowlock-debootstrap-", suffix=".log") as log:
        process = spawn_process([*_build_unshare_command(), *command], output=log.file)
        try:
            watch_process(f"installing {server}", process, size, lambda: measure_folder_size(staging))
        finally:
            kill_tree(process.pid)
            process.wait()
            release_process(process)
        if process.returncode != 0:
            raise _build_error(server, Path(log.name))
    shutil.rmtree(staging / "var" / "cache" / "apt", ignore_errors=True)


def _build_unshare_command() -> list[str]:
    """Return the prefix that gives debootstrap its own mount namespace.

    debootstrap mounts /proc inside its root; in that namespace no mount outlives a killed run.
    """
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return ["unshare", "--mount"] if probe.returncode == 0 else []


def _build_error(server: str, log: Path) -> EmbeddedError:
    lines = log.read_text(errors="replace").splitlines()
    important = [line for line in lines if line.startswith(("E:", "W:"))] or lines
    seen = "debootstrap failed:" + "".join(f"\n    {line}" for line in important[-8:])
    return EmbeddedError(
        f"installing {server}", seen, "check the network and apt's mirror, then run it again"
    )


def _find_mirror() -> str:
    """Return the archive that apt itself uses for Debian; empty if it uses none."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    archives = [uri for uri in answer.stdout.split() if not uri.rstrip("/").endswith("-security")]
    return archives[0] if archives else ""
