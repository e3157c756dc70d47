"""How long a server's and a topic's settings say that things are kept."""

from __future__ import annotations

import pytest

from rowlock.commands.tables import format_headroom_lines
from rowlock.views.retention import Backlog, RetentionLimits, format_bytes, format_period
from rowlock.views.source import log_kept
from rowlock.views.topic_settings import parse_topic_retention

SECONDS, DAYS = "binlog_expire_logs_seconds", "expire_logs_days"


@pytest.mark.parametrize(
    ("variables", "kept"),
    [
        ({}, RetentionLimits(None, DAYS)),
        ({SECONDS: "0", DAYS: "0"}, RetentionLimits(None, DAYS)),
        ({SECONDS: "2592000", DAYS: "0", "binlog_expire_logs_auto_purge": "ON"}, RetentionLimits(2_592_000.0, SECONDS)),  # noqa: E501
        ({SECONDS: "2592000", "binlog_expire_logs_auto_purge": "OFF"}, RetentionLimits(None, SECONDS)),
        ({SECONDS: "60", DAYS: "3"}, RetentionLimits(60.0, SECONDS)),
        ({DAYS: "0.5"}, RetentionLimits(43_200.0, DAYS)),
        ({SECONDS: "0", "max_binlog_total_size": "5000", "binlog_space_limit": "5000"}, RetentionLimits(None, DAYS, 5000, "max_binlog_total_size")),  # noqa: E501
        ({DAYS: "7", "binlog_space_limit": "9"}, RetentionLimits(604_800.0, DAYS, 9, "binlog_space_limit")),
        ({"max_binlog_total_size": "0"}, RetentionLimits(None, DAYS)),
    ],
)  # fmt: skip
def test_of_a_log(variables: dict[str, str], kept: RetentionLimits) -> None:
    assert log_kept(variables) == kept


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"retention.ms": "-1", "retention.bytes": "-1"}, RetentionLimits(None, "retention.ms", None, "retention.bytes")),  # noqa: E501
        ({"retention.ms": "1500", "retention.bytes": "-1"}, RetentionLimits(1.5, "retention.ms", None, "retention.bytes")),  # noqa: E501
        ({"retention.ms": "0", "retention.bytes": "0"}, RetentionLimits(0.0, "retention.ms", 0, "retention.bytes")),  # noqa: E501
    ],
)  # fmt: skip
def test_of_a_topic(settings: dict[str, str], kept: RetentionLimits) -> None:
    assert parse_topic_retention(settings) == kept


def test_times_and_sizes_for_people() -> None:
    seconds = (0, 119, 120, 7199, 7200, 172_799, 172_800)
    assert [format_period(each) for each in seconds] == [
        "0 s", "119 s", "2.0 minutes", "120.0 minutes", "2.0 hours", "48.0 hours", "2.0 days",
    ]  # fmt: skip
    assert [format_bytes(each) for each in (0, 1023, 1024, 1 << 20, 3 << 39)] == [
        "0 bytes", "1023 bytes", "1.0 KiB", "1.0 MiB", "1.5 TiB",
    ]  # fmt: skip


def test_what_is_deleted_first_is_shown_first_and_not_more_than_a_screen() -> None:
    def topic(name: str, seconds: float | None, age_s: float = 0.0) -> Backlog:
        return Backlog(
            f"topic {name}",
            "it",
            RetentionLimits(seconds, "retention.ms"),
            age_s,
            "pipeline p has not applied",
            None,
        )

    lines = format_headroom_lines([topic("ever", None), topic("b", 90.0), topic("a", 100.0, 70.0)])
    assert [line.split(":")[0] for line in lines] == ["topic a", "topic b", "topic ever"]
    many = format_headroom_lines([topic(f"t{number}", 100.0) for number in range(25)])
    assert many[20:] == ["… and 5 more that are kept at least as long"]
