"""Which repositories, which of their files, and which files make one case together. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class Repository:
    """`paths`: expressions that a file's path matches; `leave`: those that it must not match.

    `together`: files of a folder whose path matches make one case, in the order of `order`.
    """

    suite: str
    name: str
    paths: tuple[str, ...]
    leave: str = r"(?!)"
    together: str = r"(?!)"

    def takes(self, path: str) -> bool:
        return any(re.search(each, path) for each in self.paths) and not re.search(self.leave, path)

    def groups(self, paths: Iterable[str]) -> list[tuple[str, ...]]:
        """Return the files that it takes, those of one case together."""
        found: dict[str, list[str]] = {}
        for path in sorted(filter(self.takes, paths)):
            found.setdefault(self._group(path), []).append(path)
        return [tuple(sorted(group, key=order)) for group in found.values()]

    def _group(self, path: str) -> str:
        if not re.search(self.together, path):
            return path
        place = PurePosixPath(path)
        number = re.search(r"db(\d+)", place.name)
        kind = re.match(r"gho|pt", place.name)
        return f"{place.parent}/{kind.group() if kind else ''}{number.group(1) if number else ''}"


_FIRST = ("schema", "create", "init", "pre", "before")
_LAST = ("finish", "clean", "check", "after")


def order(path: str) -> tuple[int, list[str | int], str]:
    """What makes tables comes first, what waits for an end comes last; in between by name, numbers as
    numbers."""
    name = PurePosixPath(path).name.lower()
    rank = 0 if any(each in name for each in _FIRST) else 2 if any(each in name for each in _LAST) else 1
    parts = [f"{int(each):09d}" if each.isdigit() else each for each in re.split(r"(\d+)", name)]
    return rank, list(parts), name


_FOREIGN = r"(?i)oracle|postgres|sqlserver|db2|vitess|tidb|polardb|oceanbase|doris|mongo|/docker/|spanner|informix|derby|h2/"  # noqa: E501

REPOSITORIES = (
    Repository(
        "debezium",
        "debezium/debezium",
        (
            r"\.(?:sql|ddl)$",
            r"debezium-connector-(?:binlog|mysql|mariadb)/src/test/java/.*\.java$",
            r"debezium-connector-jdbc/src/test/java/.*/mysql/.*\.java$",
        ),
        leave=_FOREIGN,
    ),
    Repository(
        "flink-cdc",
        "apache/flink-cdc",
        (r"(?i)mysql.*\.sql$", r"/src/test/resources/ddl/.*\.sql$", r"(?i)src/test/java/.*mysql.*\.java$"),
        leave=_FOREIGN,
    ),
    Repository(
        "maxwell",
        "zendesk/maxwell",
        (r"src/test/resources/sql/.*", r"src/test/java/.*\.java$", r"src/main/resources/sql/.*\.sql$"),
    ),
    Repository(
        "canal",
        "alibaba/canal",
        (r"parse/src/.*/ddl/(?:alter|table|mysql)/.*\.sql$", r"parse/src/test/resources/ddl/[^/]*\.sql$",
         r"/src/test/.*\.(?:java|sql)$"),
    ),
    Repository(
        "dm",
        "pingcap/tiflow",
        (r"^dm/.*\.sql$", r"^dm/.*_test\.go$", r"^dm/tests/.*\.sh$", r"^engine/.*\.sql$",
         r"^sync_diff_inspector/.*\.(?:sql|sh)$"),
        together=r"/tests/.*/data/.*\.sql$|/integration_tests/.*/data/.*\.sql$",
    ),
    Repository(
        "ticdc-old",
        "pingcap/tiflow",
        (r"^(?:cdc|pkg|tests)/.*\.sql$", r"^(?:cdc|pkg|cmd)/.*_test\.go$", r"^tests/.*\.sh$"),
        together=r"/integration_tests/[^/]*/data/.*\.sql$",
    ),
    Repository(
        "ticdc",
        "pingcap/ticdc",
        (r"\.sql$", r"_test\.go$", r"^tests/.*\.sh$"),
        together=r"/integration_tests/[^/]*/data/.*\.sql$",
    ),
    Repository(
        "python-mysql-replication",
        "julien-duponchelle/python-mysql-replication",
        (r"tests/.*\.py$", r"\.sql$"),
    ),
    Repository("go-mysql", "go-mysql-org/go-mysql", (r"_test\.go$", r"\.sql$")),
    Repository("binlog-connector", "osheroff/mysql-binlog-connector-java",
     (r"src/test/java/.*\.java$", r"\.sql$")),
    Repository("gh-ost", "github/gh-ost", (r"localtests/.*/create\.sql$", r"_test\.go$")),
)  # fmt: skip
