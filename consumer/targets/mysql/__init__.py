"""MySQL, MariaDB and TDSQL as targets."""
