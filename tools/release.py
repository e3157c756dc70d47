"""Builds a release into dist/ and tests it: `python -m tools.release [--untagged]`, which is what
`make release` runs.

A release is a wheel, a source distribution, the documentation's site, `constraints-VERSION.txt` with the
versions of every dependency with which it was tested, and `locked-VERSION.txt` with the SHA-256 of each
installed file as well. It is built from the last commit, never from uncommitted files. That commit needs the
tag of its version, unless the version is a development version. The wheel is installed into an empty virtual
environment outside the tree, where each module has to load, and `rowlock demo`, `init` and `run` have to
work in an empty folder.
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import rowlock
from rowlock.commands.pages import SITE
from tools.wheel_trial import TrialError, try_commands, try_installed

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
SITE_FOLDER = SITE.relative_to(ROOT).as_posix()
PACKAGES = ("schemas", "producer", "consumer", "coordinator", "deploy", "rowlock")

_LOAD_EVERYTHING = """
import importlib, pathlib, pkgutil, sys
tree, *packages = sys.argv[1:]
for name in packages:
    package = importlib.import_module(name)
    file = pathlib.Path(package.__file__)
    if file.is_relative_to(tree):
        sys.exit(f"{name} was loaded from the work tree, {file}, not from the wheel")
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""


class ReleaseError(Exception):
    """A release cannot be built or used. The message contains the cause and the remedy."""


def check_version(changelog: str, version: str) -> None:
    """Raise ReleaseError unless the newest section of `changelog` is that of `version`; for a
    development version, [Unreleased].
    """
    if ".dev" in version:
        if "## [Unreleased]" not in changelog:
            raise ReleaseError(
                f"CHANGELOG.md has no section [Unreleased], and {version} is a development version. Add it"
            )
        return
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", changelog, flags=re.MULTILINE)
    if released[:1] != [version]:
        newest = released[0] if released else "none"
        raise ReleaseError(
            f"rowlock.__version__ is {version}, and the newest section of CHANGELOG.md is {newest}. "
            "Set the version in rowlock/__init__.py and give it a section in CHANGELOG.md"
        )


def check_tag(version: str, tags: list[str]) -> None:
    """Raise ReleaseError unless `tags`, those of the last commit, have that of `version`; a development
    version needs none.
    """
    if ".dev" not in version and f"v{version}" not in tags:
        raise ReleaseError(
            f"the last commit has the version {version}, but not the tag v{version} (its tags: "
            f"{', '.join(tags) or 'none'}). Set it with `git tag v{version}`, or try the release before with "
            "`make release ARGS=--untagged`"
        )


def missing_files(names: list[str], committed: list[str]) -> list[str]:
    """Return the files of the packages that are missing from an archive with the files `names`.

    `committed`: the files of the commit, and of the site that was built from it.
    """
    packaged = {name for name in committed if _folder(name) in PACKAGES and _is_packaged(name)}
    return sorted(packaged - set(names))


def foreign_files(names: list[str]) -> list[str]:
    """Return the files of a wheel that belong to none of the packages: tests, benchmarks, tools."""
    return sorted(name for name in names if _folder(name) not in PACKAGES and ".dist-info/" not in name)


def _folder(name: str) -> str:
    return name.partition("/")[0]


def _is_packaged(name: str) -> bool:
    is_test_data = name.startswith("schemas/golden/")
    is_of_site = name.startswith(f"{SITE_FOLDER}/")
    return is_of_site or (name.endswith((".py", ".json", ".yaml", ".typed")) and not is_test_data)


def main() -> None:
    """Build, check and test the release of the present version."""
    parser = argparse.ArgumentParser(prog="python -m tools.release")
    parser.add_argument("--untagged", action="store_true", help="try a release before its tag is set")
    untagged = parser.parse_args().untagged
    try:
        if not untagged:
            check_tag(rowlock.__version__, _git("tag", "--points-at", "HEAD").decode().split())
        check_version((ROOT / "CHANGELOG.md").read_text(), rowlock.__version__)
        with tempfile.TemporaryDirectory(prefix="rowlock-release-") as scratch:
            _release(Path(scratch))
    except (ReleaseError, TrialError) as error:
        sys.exit(f"release: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"release: {' '.join(map(str, error.cmd[:6]))} ended with exit code {error.returncode}")


def _release(scratch: Path) -> None:
    tree, built = scratch / "tree", scratch / "dist"
    committed = _export_last_commit(tree)
    pages = _build_site(tree, scratch)
    _run(sys.executable, "-m", "build", "--outdir", built, tree)
    wheel, sdist = (next(built.glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    _check_contents(wheel, sdist, [*committed, *pages])
    site = built / f"site-{rowlock.__version__}.tar.gz"
    pack_site(tree / SITE_FOLDER, site)
    constraints, locked = (built / f"{name}-{rowlock.__version__}.txt" for name in ("constraints", "locked"))
    of_wheel = _new_environment(scratch / "wheel")
    report = scratch / "report.json"
    _install(of_wheel, "--report", report, f"{wheel}[demo]")
    constraints.write_text(_dependency_versions(of_wheel))
    locked.write_text(list_hashes(json.loads(report.read_text())))
    _load_installed(of_wheel)
    try_commands(of_wheel)
    sys.stdout.write(f"tried in an empty folder: {'; '.join(try_installed(of_wheel))}\n")
    wheels = _collect_wheels(of_wheel, locked, scratch / "wheels")
    of_sdist = _new_environment(scratch / "sdist")
    _install(of_sdist, "--no-index", "--find-links", wheels, sdist)
    _load_installed(of_sdist)
    try_commands(of_sdist)
    sys.stdout.write("installed from the source distribution and a folder of wheels, without an index\n")
    DIST.mkdir(exist_ok=True)
    for file in (wheel, sdist, site, constraints, locked):
        (DIST / file.name).write_bytes(file.read_bytes())
        sys.stdout.write(f"dist/{file.name}\n")


def _export_last_commit(tree: Path) -> list[str]:
    """Write the files of the last commit into `tree`, and return their names."""
    if _git("status", "--porcelain"):
        sys.stderr.write("release: changes that are not committed are not part of the release\n")
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "HEAD"))) as archive:
        archive.extractall(tree, filter="data")
        return [member.name for member in archive.getmembers() if member.isfile()]


def _build_site(tree: Path, scratch: Path) -> list[str]:
    """Build the documentation's site into the package `rowlock` of `tree`, and return its files' names."""
    site = tree / SITE_FOLDER
    sphinx = (sys.executable, "-m", "sphinx", "-W", "-n", "-q")
    _run(*sphinx, "-c", tree / "docs", "-d", scratch / "doctrees", tree, site)
    for unused in (*site.rglob("*.map"), site / ".buildinfo"):  # for the makers of a theme, and for Sphinx
        unused.unlink()
    return [file.relative_to(tree).as_posix() for file in site.rglob("*") if file.is_file()]


def pack_site(folder: Path, archive: Path) -> None:
    """Write the site into one archive, in a folder with the archive's name."""
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, archive.name.removesuffix(".tar.gz"))


def _git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise ReleaseError(
            f"git {arguments[0]} failed: {error}. A release is built from a commit: run it "
            "in a clone of the repository"
        ) from error


def _check_contents(wheel: Path, sdist: Path, committed: list[str]) -> None:
    with tarfile.open(sdist) as archive:
        in_sdist = [member.name.partition("/")[2] for member in archive.getmembers()]
    in_wheel = zipfile.ZipFile(wheel).namelist()
    if foreign := foreign_files(in_wheel):
        raise ReleaseError(
            f"{wheel.name} has {len(foreign)} files of no package, among them {', '.join(foreign[:3])}. "
            "Remove them in setup.cfg: options.packages.find"
        )
    for file, names in ((wheel, in_wheel), (sdist, in_sdist)):
        if absent := missing_files(names, committed):
            raise ReleaseError(
                f"{file.name} lacks {len(absent)} files, among them {', '.join(absent[:3])}. "
                "Add them in setup.cfg: options.packages.find or options.package_data"
            )


def _install(python: Path, *arguments: str | Path) -> None:
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def _collect_wheels(python: Path, locked: Path, folder: Path) -> Path:
    """Put all that an installation without internet needs into `folder`, as docs/how-to/install.md does.

    pip takes PySpark, which it has built for the first installation, from its cache.
    """
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
    _run(*pip, "wheel", "--require-hashes", "-r", locked, "-w", folder)
    _run(*pip, "download", "setuptools", "wheel", "-d", folder)
    return folder


def _dependency_versions(python: Path) -> str:
    """Return the versions of all packages that were installed with rowlock, one per line."""
    command = (python, "-m", "pip", "freeze", "--disable-pip-version-check", "--exclude", "rowlock")
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def list_hashes(report: dict[str, Any]) -> str:
    """Return the requirements for `pip install --require-hashes` from the report of an installation by pip.

    A hash belongs to one file, which fits a Python and a platform: the first line names them.
    """
    lines = [f"# Python {platform.python_version()} on {platform.system()}, {platform.machine()}"]
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        if name != "rowlock":
            lines.append(f"{name}=={version} --hash=sha256:{digest}")
    return "\n".join([lines[0], *sorted(lines[1:], key=str.lower), ""])


def _load_installed(python: Path) -> None:
    """Run the installed command and load every module, away from the work tree."""
    elsewhere = python.parents[1]
    command = (python.with_name("rowlock"), "--version")
    shown = subprocess.run(command, check=True, capture_output=True, text=True, cwd=elsewhere).stdout.strip()
    if shown != f"rowlock, version {rowlock.__version__}":
        raise ReleaseError(f"{command[0]} --version prints {shown!r}, not the version {rowlock.__version__}")
    _run(python, "-c", _LOAD_EVERYTHING, ROOT, *PACKAGES, cwd=elsewhere)


def _new_environment(folder: Path) -> Path:
    """Create a virtual environment, and return its Python."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    """Run a command. Its output is shown only if it fails."""
    done = subprocess.run(
        list(map(str, command)),
        check=False,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.stderr.write(done.stdout)
        done.check_returncode()


if __name__ == "__main__":
    main()
