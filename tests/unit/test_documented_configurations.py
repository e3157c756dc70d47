"""Every configuration that README, docs/ and deploy/ show is one that rowlock loads."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest
import yaml

from schemas.config.model import Config, ConfigErrors, load_config

ROOT = Path(__file__).resolve().parents[2]
COMPLETE = {"kafka", "sources", "targets", "pipelines"}
#: What a block that shows a part of a configuration is a part of.
REST = """\
kafka: {bootstrap: 127.0.0.1:9092}
sources:
  branch1: {type: mysql, host: 127.0.0.1, user: rowlock, password: x, tables: [bank.*]}
  branch2: {type: mariadb, host: 127.0.0.1, user: rowlock, password: x, tables: [bank.*]}
targets:
  hq: {type: postgres, host: 127.0.0.1, user: rowlock, password: x, database: hq}
  feed: {type: kafka, bootstrap: 127.0.0.1:9092}
pipelines:
  to-hq: {sources: [branch1], target: hq, routes: [{from: bank.*, to: "public.{table}"}]}
  out: {sources: [branch1], target: feed, routes: [{from: bank.*, to: "head.{table}"}]}
"""


class Block(NamedTuple):
    """A block of YAML in a page, or a whole file."""

    place: str
    text: str


def blocks_of(page: str, text: str) -> list[Block]:
    """Return the YAML blocks of a Markdown page."""
    found = re.finditer(r"^( *)```ya?ml\n(.*?)^\1```$", text, flags=re.MULTILINE | re.DOTALL)
    return [Block(f"{page}:{text.count(chr(10), 0, each.start()) + 1}", dedent(each[2])) for each in found]


def documented() -> list[Block]:
    pages = [*sorted(ROOT.glob("README*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    blocks = [block for page in pages for block in blocks_of(str(page.relative_to(ROOT)), page.read_text())]
    files = sorted((ROOT / "deploy").glob("*.yaml"))
    return blocks + [Block(str(file.relative_to(ROOT)), file.read_text()) for file in files]


def completed(text: str) -> str:
    """Return `text` with what a complete configuration has besides; a complete one as it is written."""
    part = yaml.safe_load(text)
    return text if part.keys() >= COMPLETE else yaml.safe_dump(merged(yaml.safe_load(REST), part))


def merged(rest: Any, part: Any) -> Any:
    if not isinstance(rest, dict) or not isinstance(part, dict):
        return part
    return rest | {key: merged(rest.get(key), value) for key, value in part.items()}


def load_documented(text: str, folder: Path) -> Config:
    """Load a documented configuration: secret files exist in `folder`, and each variable of the environment
    is set."""
    (folder / "secret").write_text("x\n")
    text = re.sub(r"/run/secrets/[\w-]+", str(folder / "secret"), completed(text))
    file = folder / "rowlock.yaml"
    file.write_text(text)
    return load_config(file, dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "x"))


@pytest.mark.parametrize("block", documented(), ids=lambda block: block.place)
def test_documented_configuration_loads(block: Block, tmp_path: Path) -> None:
    load_documented(block.text, tmp_path)


def test_readme_shows_a_complete_configuration() -> None:
    (readme,) = blocks_of("README.md", (ROOT / "README.md").read_text())
    assert yaml.safe_load(readme.text).keys() >= COMPLETE


@pytest.mark.parametrize(
    "mistake",
    [
        "sources:\n  branch1: {typ: mysql}\n",
        "pipelines:\n  to-hq: {target: head}\n",
        "cafka: {}\n",
        REST.replace("database: hq", "databse: hq"),
    ],
)
def test_a_mistake_in_a_block_is_found(mistake: str, tmp_path: Path) -> None:
    (block,) = blocks_of("page.md", f"Text\n\n   ```yaml\n{mistake}   ```\n")
    with pytest.raises(ConfigErrors):
        load_documented(block.text, tmp_path)
