"""Statements with a syntax that many databases share, for a dialect's `Syntax`; only dialects' modules
import this.
"""

from __future__ import annotations

from collections.abc import Sequence

from consumer.targets.sql import render_row_placeholders


def create_if_missing(name: str, body: str) -> str:
    return f"CREATE TABLE IF NOT EXISTS {name} ({body})"


def render_for_update(select: str) -> str:
    return f"{select} FOR UPDATE"


def render_limit(select: str, order: str, rows: int) -> str:
    return f"{select} ORDER BY {order} LIMIT {rows:d}"


def insert_values(name: str, columns: Sequence[str], rows: int) -> str:
    return f"INSERT INTO {name} ({', '.join(columns)}) VALUES {render_row_placeholders(len(columns), rows)}"
