"""A limit of the processor time of a group of processes, by control groups of version 1 or 2."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from deploy.guard.guardian import read_start_time

_V1_LIMITS, _V1_USAGE = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpuacct")
_V2 = Path("/sys/fs/cgroup")
_PERIOD_US = 20_000  # short: a limited process is slow, and does not stop for long


class CpuLimit:
    """A control group whose processes get `cores` of processor time together. `join`: shell words by which a
    process enters it. Raises OSError where control groups cannot be made."""

    def __init__(self, name: str, cores: float) -> None:
        _remove_leftovers()
        group = f"rowlock-{os.getpid()}-{read_start_time(os.getpid())}-{name}"
        self._folders = [root / group for root in _find_roots()]
        for folder in self._folders:
            folder.mkdir(exist_ok=True)  # of version 1, both may be one folder
        limited, counting = self._folders[0], self._folders[-1]
        quota = int(cores * _PERIOD_US)
        if (limited / "cpu.max").exists():
            (limited / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            self._usage = counting / "cpu.stat"
        else:
            (limited / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (limited / "cpu.cfs_quota_us").write_text(str(quota))
            self._usage = counting / "cpuacct.usage"
        self.join = "; ".join(f"echo 0 > '{folder}/cgroup.procs'" for folder in self._folders)

    @property
    def used_s(self) -> float:
        """Processor time that the group has used, in seconds."""
        words = self._usage.read_text().split()
        return int(words[0]) / 1e9 if len(words) == 1 else int(words[1]) / 1e6

    def close(self) -> None:
        """Remove the group; its processes must have ended."""
        for folder in self._folders:
            for _ in range(100):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.05)
                else:
                    break


def _find_roots() -> list[Path]:
    """Return the folders in which groups are made: the one that limits, and the one that counts."""
    if (_V1_LIMITS / "cpu.cfs_quota_us").exists() or (_V1_LIMITS / "cgroup.procs").exists():
        return [_V1_LIMITS, _V1_USAGE]
    with contextlib.suppress(OSError):
        (_V2 / "cgroup.subtree_control").write_text("+cpu")
    return [_V2]


def _remove_leftovers() -> None:
    """Remove the empty groups of test processes that were killed."""
    for root in _find_roots():
        for folder in root.glob("rowlock-*-*-*"):
            _, pid, since, _ = folder.name.split("-", 3)
            if read_start_time(int(pid)) != since:
                with contextlib.suppress(OSError):
                    folder.rmdir()
