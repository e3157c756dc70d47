"""A configuration without mistakes."""

from __future__ import annotations

GOOD = """\
kafka:
  bootstrap: 127.0.0.1:9092
sources:
  branch1:
    type: mariadb
    host: 127.0.0.1
    user: rowlock
    password: "${SECRET}"
    tables: [bank.*, "!bank.tmp_*"]
targets:
  hq:
    type: postgres
    host: 127.0.0.1
    port: 5432
    user: rowlock
    password: geheim
    database: hq
pipelines:
  to-hq:
    sources: [branch1]
    target: hq
    routes:
      - from: bank.*
        to: public.{table}
        add: {branch: "{source}"}
"""
