"""Oracle's stand (b): a process with seekdb, an engine of its own that keeps materialized view logs; it knows
nothing of rowlock.

`python tests/stands/seekdb_process.py WHEEL FOLDER SEED`: three sessions insert, update, delete and move
keys, commit and roll back as the seed decides. Printed are, as lines of JSON, what each look found ({"rows":
…, "log": …}), and last what a purge by another consumer left.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

LOOKS, KEYS = 40, 10


def main(wheel: str, folder: str, seed: int) -> None:
    sys.path.insert(0, wheel)
    import pylibseekdb  # type: ignore[import-not-found]

    pylibseekdb.open(folder)
    rng = random.Random(seed)
    own, *sessions = (pylibseekdb.connect("test", False) for _ in range(4))
    ask(own, "CREATE TABLE t (id INT PRIMARY KEY, version INT, name VARCHAR(20))")
    ask(
        own,
        "CREATE MATERIALIZED VIEW LOG ON t WITH PRIMARY KEY, ROWID, SEQUENCE "
        "(version, name) INCLUDING NEW VALUES",
    )
    locked: list[set[int]] = [set() for _ in sessions]
    version = 0
    for _ in range(LOOKS):
        for _ in range(rng.randint(1, 6)):
            version += 1
            number = rng.randrange(len(sessions))
            if rng.random() < 0.3:
                sessions[number].commit() if rng.random() < 0.75 else sessions[number].rollback()
                locked[number].clear()
            else:
                change(rng, sessions[number], locked[number], set().union(*locked) - locked[number], version)
        show(own)
    for session in sessions:
        session.commit()
    show(own)
    ask(own, "CALL dbms_mview.purge_log('t')")
    show(own)


def change(rng: random.Random, session: Any, mine: set[int], others: set[int], version: int) -> None:
    free = [id_ for id_ in range(KEYS) if id_ not in others]
    if len(free) < 2:
        return
    one, other = rng.sample(free, 2)
    there = {row[0] for row in ask(session, "SELECT id FROM t")}
    mine |= {one, other}
    if one not in there:
        ask(session, f"INSERT INTO t VALUES ({one}, {version}, 'n{version}')")
    elif rng.random() < 0.3:
        ask(session, f"DELETE FROM t WHERE id = {one}")
    elif other not in there and rng.random() < 0.5:
        ask(session, f"UPDATE t SET id = {other}, version = {version} WHERE id = {one}")
    else:
        ask(session, f"UPDATE t SET version = {version}, name = 'n{version}' WHERE id = {one}")


def show(session: Any) -> None:
    session.commit()
    rows = ask(session, "SELECT id, version, name FROM t ORDER BY id")
    log = ask(
        session, "SELECT `SEQUENCE$$`, `DMLTYPE$$`, `OLD_NEW$$`, ora_rowscn, id, version, name FROM `mlog$_t`"
    )
    print(json.dumps({"rows": rows, "log": log}), flush=True)
    session.commit()


def ask(session: Any, sql: str) -> list[Any]:
    cursor = session.cursor()
    cursor.execute(sql)
    return list(cursor.fetchall()) if sql.startswith("SELECT") else []


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
