"""The source databases, each with its catalog, its tables and its log.

`protocols` is what capture requires of a source; `known` finds a source's implementation by its type in the
configuration. `binlog` is common to `mysql` and `mariadb`; `oracle` polls materialized view logs.
"""
