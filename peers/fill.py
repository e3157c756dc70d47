"""`python -m peers.fill --mirror DIR --corpus DIR`: make cases of the repositories that lie in DIR.

Of each repository `owner/name` a bare clone lies in `DIR/owner+name` or `DIR/owner+name/repo`; nothing is
fetched here.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from peers.cases import Case, case, write
from peers.literals import READERS, parts_of
from peers.repositories import REPOSITORIES, Repository
from peers.sql_text import statements

_EXPECTATION = "->"


class Mirror:
    """The newest commit of one repository's bare clone."""

    def __init__(self, folder: Path, name: str) -> None:
        places = [folder / name.replace("/", "+"), folder / name.replace("/", "+") / "repo"]
        found = [each for each in places if (each / "HEAD").exists()]
        if not found:
            raise SystemExit(f"{name}: no bare clone in {places[0]}: clone it there (README.md)")
        self._git = ["git", "-C", str(found[0])]

    def paths(self) -> list[str]:
        return self._say("ls-tree", "-r", "--name-only", "-z", "HEAD").decode().split("\0")[:-1]

    def text(self, path: str) -> str:
        return self._say("show", f"HEAD:{path}").decode("utf-8", errors="replace")

    def _say(self, *words: str) -> bytes:
        return subprocess.run([*self._git, *words], check=True, capture_output=True).stdout


def without_expectations(text: str) -> str:
    """Take out what a Maxwell test expects: from a line that begins with `->` to the next that begins with a
    letter."""
    out, inside = [], False
    for line in text.splitlines():
        if line.lstrip().startswith(_EXPECTATION):
            inside = True
        elif line[:1].isalpha():
            inside = False
        if not inside:
            out.append(line)
    return "\n".join(out)


def cases_of(repository: Repository, mirror: Mirror) -> Iterator[Case]:
    for group in repository.groups(mirror.paths()):
        texts = {path: mirror.text(path) for path in group}
        files = [f"{repository.name}:{path}" for path in group]
        ending = group[0].rpartition(".")[2]
        if ending in READERS:
            for name, found in parts_of(ending, texts[group[0]]):
                made = case(repository.suite, f"{group[0]}#{name}", files, found)
                if made:
                    yield made
            continue
        found = [each for text in texts.values() for each in statements(without_expectations(text))]
        made = case(repository.suite, group[0], files, found)
        if made:
            yield made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m peers.fill", description=__doc__)
    parser.add_argument("--mirror", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    options = parser.parse_args()
    seen: set[str] = set()
    files: Counter[str] = Counter()
    for repository in REPOSITORIES:
        made = []
        for each in cases_of(repository, Mirror(options.mirror, repository.name)):
            if each.digest not in seen:
                seen.add(each.digest)
                made.append(each)
        write(options.corpus, repository.suite, made)
        taken = {file for each in made for file in each.files}
        files[repository.suite] = len(taken)
        count = sum(len(each.statements) for each in made)
        print(f"{repository.suite}: {len(taken)} files, {len(made)} cases, {count} statements")
    print(f"all: {sum(files.values())} files, {len(seen)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
