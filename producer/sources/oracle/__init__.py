"""Oracle as a source: its materialized view logs are polled, published, and deleted once Kafka has them
(docs/adr/0028-oracle-source.md).

`sql`, `forms`, `types`, `mlog`, `segments`, `shared`, `following`, `table_checks` and `definition_check` are
pure; the others use a session.
"""
