"""A materialized view log of Oracle as rows."""

from __future__ import annotations

from producer.sources.oracle.table_checks import Constraint, LoggedTable, MlogOptions, judge_oracle_table
from producer.sources.oracle.types import OracleColumn

NAME = ("BANK", "A")


LOG = MlogOptions(NAME, "MLOG$_A", True, True, True, False, False)


COLUMNS = [OracleColumn(each, "NUMBER", 22, 0, 10, 0, False, False, False) for each in ("ID", "V")]


OWN = [COLUMNS[0]._replace(name=name) for name in ("SEQUENCE$$", "DMLTYPE$$", "OLD_NEW$$", "XID$$")]


def logged(*more: Constraint) -> LoggedTable:
    """Return the table, with more constraints than its key."""
    columns = {NAME: COLUMNS, LOG.log: [*COLUMNS, *OWN]}
    survey, found = judge_oracle_table(NAME, columns, [Constraint("PK", "P", ("ID",)), *more], LOG)
    assert found is not None, survey
    return found
