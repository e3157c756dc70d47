"""Draws the picture of the READMEs: `python -m tools.docs.overview` writes docs/overview.svg and
docs/zh/overview.svg.

It shows sources, topics, Spark and targets, and the coordinator beside them. A test compares the files with
this output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 980, 372
_TOP, _BOTTOM = 34, 246
"""Where the columns begin and end."""
_ROWS = ((_TOP, 60), (_TOP + 76, 60), (_TOP + 152, 60))
"""(top, height) of the boxes of a column with three."""
_STYLE = """\
text{font-family:Helvetica,Arial,"Noto Sans CJK SC","Microsoft YaHei",sans-serif;font-size:13px;fill:#1f2933}
.head{font-size:14px;font-weight:bold}
.box{fill:#f4f7fa;stroke:#52606d}
.part{fill:#ffffff;stroke:#9aa5b1}
.server{fill:#e3f0fb;stroke:#2b6cb0}
.boss{fill:#fdf3e1;stroke:#b7791f}
.way{stroke:#52606d;stroke-width:2;fill:none;marker-end:url(#end)}
.command{stroke:#b7791f;stroke-width:1.5;fill:none;stroke-dasharray:5 4;marker-start:url(#order);\
marker-end:url(#order)}"""


@dataclass(frozen=True, slots=True)
class Labels:
    """The texts of the picture in one language. A box has a heading and lines below it."""

    title: str
    sources: tuple[tuple[str, str], ...]
    capture: tuple[str, ...]
    kafka: tuple[str, ...]
    topics: tuple[str, ...]
    spark: tuple[str, ...]
    slots: tuple[str, ...]
    targets: tuple[tuple[str, str], ...]
    coordinator: tuple[str, ...]


ENGLISH = Labels(
    title="Sources are captured into topics of Kafka, and slots in Spark apply these to targets; a "
    "coordinator beside them places the units of capture and apply on agents",
    sources=(("branch 1", "MariaDB"), ("branch 2", "MySQL"), ("branch N", "…")),
    capture=("capture", "reads each", "log, and takes", "snapshots", "without locks"),
    kafka=("Kafka", "a topic per table, in log order"),
    topics=("branch1.bank.accounts", "branch1.bank.customers", "branch2.bank.accounts"),
    spark=("Spark", "lanes, and locks by value"),
    slots=("slot 1", "slot 2", "slot N"),
    targets=(("PostgreSQL", "rows + progress"), ("MySQL, MariaDB", "rows + progress"), ("Kafka", "topics")),
    coordinator=(
        "coordinator",
        "places units of capture and apply on agents, and moves them",
    ),
)
CHINESE = Labels(
    title="源数据库的变更被采集到 Kafka 的主题中，由 Spark 中的 slot 应用到目标数据库；"
    "旁边的 coordinator 把采集和应用的单元分给各个 agent",
    sources=(("分支 1", "MariaDB"), ("分支 2", "MySQL"), ("分支 N", "…")),
    capture=("采集", "读取每个日志，", "快照不加锁"),
    kafka=("Kafka", "每张表一个主题，按日志顺序"),
    topics=ENGLISH.topics,
    spark=("Spark", "并行的通道，唯一值的锁"),
    slots=("slot 1", "slot 2", "slot N"),
    targets=(("PostgreSQL", "行 + 进度"), ("MySQL、MariaDB", "行 + 进度"), ("Kafka", "主题")),
    coordinator=("coordinator", "把采集和应用的单元分给各个 agent，并移动它们"),
)
PICTURES = {ROOT / "docs" / "overview.svg": ENGLISH, ROOT / "docs" / "zh" / "overview.svg": CHINESE}


def draw(labels: Labels) -> str:
    """Return the picture as SVG."""
    parts = "\n".join(_draw_parts(labels))
    title = escape(labels.title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img">\n<title>{title}</title>\n<style>\n{_STYLE}\n</style>\n<defs>\n'
        f"{_draw_arrowhead('end', '#52606d')}\n{_draw_arrowhead('order', '#b7791f')}\n</defs>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>\n{parts}\n</svg>\n'
    )


def _draw_arrowhead(name: str, color: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{color}"/>'
        "</marker>"
    )


def _draw_parts(labels: Labels) -> Iterator[str]:
    for (top, height), source in zip(_ROWS, labels.sources, strict=True):
        yield from _draw_box("server", (16, top, 120, height), source)
        yield _draw_way(136, 172, top + height // 2)
    yield from _draw_box("box", (174, _TOP, 112, _BOTTOM - _TOP), labels.capture)
    for column, (left, texts, inner) in enumerate(
        ((324, labels.kafka, labels.topics), (574, labels.spark, labels.slots))
    ):
        yield _draw_way((286, 536)[column], left - 2, (_TOP + _BOTTOM) // 2)
        yield from _draw_box("box", (left, _TOP, 212, _BOTTOM - _TOP), texts)
        for number, text in enumerate(inner):
            yield from _draw_box("part", (left + 14, _TOP + 60 + 50 * number, 184, 38), (), (text,))
    for (top, height), target in zip(_ROWS, labels.targets, strict=True):
        yield _draw_way(786, 822, top + height // 2)
        yield from _draw_box("server", (824, top, 140, height), target)
    yield from _draw_box("boss", (174, 294, 612, 58), labels.coordinator)
    for x in (230, 680):
        yield f'<path class="command" d="M{x} {_BOTTOM + 4}V290"/>'


def _draw_way(left: int, right: int, y: int) -> str:
    return f'<path class="way" d="M{left} {y}H{right}"/>'


def _draw_box(
    kind: str, place: tuple[int, int, int, int], headed: tuple[str, ...], plain: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield a box at (left, top, width, height). `headed`: a heading and the lines below it, from the top.
    `plain`: lines in the middle.
    """
    left, top, width, height = place
    yield f'<rect class="{kind}" x="{left}" y="{top}" width="{width}" height="{height}" rx="6"/>'
    middle = left + width // 2
    for number, text in enumerate((*headed, *plain)):
        y = top + 25 + 20 * number if headed else top + height // 2 + 5
        head = ' class="head"' if headed and number == 0 else ""
        yield f'<text{head} x="{middle}" y="{y}" text-anchor="middle">{escape(text)}</text>'


def main() -> None:
    """Write both pictures."""
    for path, labels in PICTURES.items():
        path.write_text(draw(labels), encoding="utf-8")


if __name__ == "__main__":
    main()
