"""What the trial of a release hides from the installed rowlock; the trial itself is run by .ci/run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools.wheel_trial import hide_git, open_empty_folder


def add_program(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


def test_git_is_not_on_the_path_and_every_other_program_is(tmp_path: Path) -> None:
    with_git, without = tmp_path / "with", tmp_path / "without"
    for name in ("git", "git-lfs", "java"):
        add_program(with_git, name)
    add_program(without, "mysql")
    path = hide_git(f"{with_git}{os.pathsep}{without}", tmp_path / "links")
    found = {name: shutil.which(name, path=path) for name in ("git", "git-lfs", "java", "mysql")}
    assert found["git"] is found["git-lfs"] is None
    assert Path(str(found["java"])).resolve() == with_git / "java"
    assert found["mysql"] == str(without / "mysql"), "a folder without git stays itself"


def test_the_trial_begins_in_an_empty_folder_without_git() -> None:
    with open_empty_folder() as (folder, env):
        assert list(folder.iterdir()) == []
        assert shutil.which("git", path=env["PATH"]) is None
        assert "PYTHONPATH" not in env
