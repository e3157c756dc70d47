"""The versions that an executor must have in common with its agent.

This needs nothing but the standard library, so that an executor without anything else can compare them.
"""

from __future__ import annotations

import hashlib
import platform
from importlib.util import find_spec
from pathlib import Path

SLOT_PACKAGES = ("consumer", "schemas")
"""rowlock's packages that slots run."""
VERSION_REMEDIES = {
    "Python": "name a Python of the agent's minor version as spark.python",
    "Spark": "use a cluster with the Spark version of the agent's PySpark",
    "rowlock": "run `rowlock spark package` again on the agent's machine, or install its rowlock there",
}
"""What has a version → what to do if it differs."""


def collect_versions() -> dict[str, str]:
    """Return the versions of this process by what has them; for rowlock that is a digest of its code."""
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "Spark": _read_spark_version(),
        "rowlock": compute_code_digest(),
    }


def explain_difference(host: str, agent: dict[str, str], executor: dict[str, str]) -> str | None:
    """Return in a sentence what the executor on `host` lacks; None: it has the agent's versions."""
    different = [name for name in VERSION_REMEDIES if agent[name] != executor.get(name)]
    if not different:
        return None
    found = (f"{name} {executor.get(name) or 'none'} (the agent has {agent[name]})" for name in different)
    todo = (VERSION_REMEDIES[name] for name in different)
    return f"the executor on {host} has {', '.join(found)}: {', and '.join(todo)}"


def compute_code_digest() -> str:
    """Return a short digest of the code that slots run. Two commits have different ones, too."""
    digest = hashlib.blake2b(digest_size=4)
    for package in SLOT_PACKAGES:
        spec = find_spec(package)
        for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
            for file in sorted(folder.rglob("*.py")):
                name = file.relative_to(folder).as_posix()
                digest.update(b"%s\0%s\0" % (name.encode(), file.read_bytes()))
    return digest.hexdigest()


def _read_spark_version() -> str:
    """Return major and minor version of PySpark, which every executor of Spark has; "" without it."""
    try:
        from pyspark.version import __version__
    except ImportError:
        return ""
    return ".".join(str(__version__).split(".")[:2])
