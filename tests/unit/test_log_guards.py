"""What keeps changes out of a source's log, judged from what the server says of itself."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from producer.checks.binlog_server import REQUIRED_SETTINGS, check_server_settings
from producer.checks.log_guards import LogFacts, log_findings
from schemas.config.model import SourceConfig

GOOD = LogFacts(
    {
        "log_slave_updates": "ON", "binlog_error_action": "ABORT_SERVER", "sync_binlog": "1",
        "innodb_flush_log_at_trx_commit": "1", "wsrep_on": "OFF",
    }
)  # fmt: skip


def facts(**variables: str) -> LogFacts:
    return replace(GOOD, variables={**GOOD.variables, **variables})


def levels(found: LogFacts) -> list[str]:
    notified = list(log_findings(found, "source s"))
    assert all(each.remedy and ": " not in each.remedy for each in notified), (
        "the remedy is found behind the last colon"
    )
    return [each.level for each in notified]


def test_a_source_that_logs_everything() -> None:
    assert levels(GOOD) == []
    assert levels(LogFacts({})) == [], "a variable that the server does not have is as it should be"
    assert levels(replace(GOOD, sources=("h:1",))) == [], "a replica that logs what it replicates"
    assert levels(facts(log_slave_updates="OFF")) == [], "it replicates nothing"


@pytest.mark.parametrize(
    "found",
    [
        replace(GOOD, do_db="bank"),
        replace(GOOD, ignore_db="bank"),
        facts(binlog_error_action="IGNORE_ERROR"),
        replace(facts(log_slave_updates="OFF"), sources=("h:1",)),
        replace(facts(log_slave_updates="OFF", log_replica_updates="0"), sources=("h:1",)),
        replace(
            facts(log_slave_updates="OFF"),
            sources=None,
            denied="you need SLAVE MONITOR",
            account="`u`@`%`",
            right="SLAVE MONITOR",
        ),
        facts(log_slave_updates="OFF", wsrep_on="ON"),
    ],
)
def test_what_is_refused(found: LogFacts) -> None:
    assert levels(found) == ["error"]


@pytest.mark.parametrize("name", ["sync_binlog", "innodb_flush_log_at_trx_commit"])
@pytest.mark.parametrize("value", ["0", "2", "100"])
def test_what_is_warned_of(name: str, value: str) -> None:
    assert levels(facts(**{name: value})) == ["warning"]


def test_the_statement_that_shows_it_is_printed() -> None:
    hidden = replace(
        facts(log_slave_updates="OFF"),
        sources=None,
        denied="denied",
        account="`u`@`%`",
        right="SLAVE MONITOR",
    )
    assert [each.remedy for each in log_findings(hidden, "s")] == ["GRANT SLAVE MONITOR ON *.* TO `u`@`%`;"]


PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "source-setup.md"


@pytest.mark.parametrize("kind", ["MariaDB", "MySQL"])
def test_documented_configuration_file_leaves_nothing_to_set(kind: str) -> None:
    block = re.search(
        rf"^{kind}:\n\n```ini\n\[mysqld\]\n(.+?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert block is not None
    lines = [line.partition("#")[0].split("=") for line in block[1].splitlines()]
    variables = {line[0].strip(): line[1].strip() for line in lines if len(line) > 1}
    source = SourceConfig.model_validate(
        {"type": kind.lower(), "host": "h", "user": "u", "password": "p", "tables": ["*.*"]}
    )
    assert list(check_server_settings(variables, source, "source s")) == []
    assert levels(LogFacts(variables)) == []
    required = {each.variable for each in REQUIRED_SETTINGS if kind.lower() in each.servers}
    assert required - variables.keys() <= {"binlog_row_value_options"}, "it is empty by default"
    assert variables["binlog_row_metadata"] == "FULL"
