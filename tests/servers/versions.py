"""The versions of MySQL and MariaDB on which the suites of sources and targets run, beside the newest."""

from __future__ import annotations

from collections.abc import Callable

from deploy.embedded.mariadb import MySQLFamily
from tests.servers import old_mariadb, old_mysql
from tests.servers.debian_mariadb import BookwormMariaDB, BullseyeMariaDB, NewMariaDB
from tests.servers.old_mariadb import OldMariaDB
from tests.servers.old_mysql import OldMySQL

#: Name of a case → makes the server, which is not started.
VERSIONS: dict[str, Callable[[], MySQLFamily]] = {
    **{f"mysql-{each}": lambda each=each: OldMySQL(each) for each in old_mysql.VERSIONS},
    **{f"mariadb-{each}": lambda each=each: OldMariaDB(each) for each in old_mariadb.VERSIONS},
    "mariadb-10.5": lambda: BullseyeMariaDB(durable=False),
    "mariadb-10.11": lambda: BookwormMariaDB(durable=False),
    "mariadb-11.8": lambda: NewMariaDB(durable=False),
}
