"""The benchmark's workload: row events in transactions of 10 (half insert, 40 % update, 10 % delete), made by
the server itself in a stored procedure, so that making it costs seconds."""

from __future__ import annotations

from typing import Any

TABLE = "account"
COLUMNS = 7
EVENTS_PER_TRANSACTION = 10

DDL = f"""
CREATE TABLE {TABLE} (
  id BIGINT NOT NULL PRIMARY KEY,
  account_no VARCHAR(32) NOT NULL,
  holder VARCHAR(64) NOT NULL,
  balance DECIMAL(18,2) NOT NULL,
  status INT NOT NULL,
  opened DATETIME(6) NOT NULL,
  touched TIMESTAMP(3) NOT NULL,
  UNIQUE KEY account_no (account_no)
) DEFAULT CHARACTER SET utf8mb4
"""

# Transaction t inserts ids 5t+1 … 5t+5, updates two of them and two rows of transaction
# t - 1000, and deletes one row of t - 1000 (of its own while there is none).
_PROCEDURE = f"""
CREATE PROCEDURE fill(IN first_t INT, IN last_t INT)
BEGIN
  DECLARE t INT DEFAULT first_t;
  DECLARE base BIGINT;
  DECLARE old BIGINT;
  WHILE t < last_t DO
    SET base = t * 5;
    SET old = GREATEST(0, t - 1000) * 5;
    START TRANSACTION;
    INSERT INTO {TABLE} VALUES
      {{rows}};
    UPDATE {TABLE} SET balance = balance + 1.25, status = status + 1, touched = NOW(3)
      WHERE id IN (base + 2, base + 3, old + 4, old + 5);
    DELETE FROM {TABLE} WHERE id = IF(t < 1000, base + 1, old + 3);
    COMMIT;
    SET t = t + 1;
  END WHILE;
END
"""


def prepare(cursor: Any) -> None:
    """Create table and procedure in the current database."""
    cursor.execute(DDL)
    rows = ",\n      ".join(
        f"(base + {i}, CONCAT('DE', LPAD(base + {i}, 18, '0')), CONCAT('Holder number ', base + {i}), "
        f"(base + {i}) * 1.37, {i}, NOW(6), NOW(3))"
        for i in range(1, 6)
    )
    cursor.execute(_PROCEDURE.format(rows=rows))


def run(cursor: Any, events: int, first_transaction: int = 0) -> int:
    """Make `events` row events; returns the number of the next transaction."""
    last = first_transaction + events // EVENTS_PER_TRANSACTION
    cursor.execute("CALL fill(%s, %s)", (first_transaction, last))
    return last
