"""MariaDB as a source: how it differs from other servers with a binlog."""
