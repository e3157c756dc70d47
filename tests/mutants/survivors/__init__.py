"""Fresh mutants that no test has to find, and why: `--fresh` names them, and does not count them.

A reason says why the product does the same with the change, or who alone would see a difference.
"""

from __future__ import annotations

import re

from tests.mutants.mutant import Mutant
from tests.mutants.survivors import of_apply, of_capture
from tests.mutants.survivors.survivor import Limit, Survivor

SURVIVORS: tuple[Survivor, ...] = (*of_apply.SURVIVORS, *of_capture.SURVIVORS)

LIMITS: tuple[Limit, ...] = (
    Limit("consumer/ordering/lanes/lane.py", "max_gather", "events in a transaction"),
    Limit("consumer/ordering/lanes/lane.py", "max_pending", "events in memory"),
    Limit("consumer/ordering/tickets.py", "SWEEP_THRESHOLD",
     "values in memory before free ones are looked for"),
    Limit("consumer/attempt/applier.py", "LOGGED_KEYS", "keys in a line of the log"),
    Limit("consumer/attempt/copies/keys.py", "KEYS_PER_PAGE", "keys looked up at a time"),
    Limit("consumer/attempt/copies/keys_on_disk.py", "MAX_KEYS_IN_MEMORY",
     "keys in memory before they go to a file"),
    Limit("consumer/attempt/copies/keys_on_disk.py", "MAX_BUFFERED_KEYS",
     "keys written to the file at a time"),
    Limit("consumer/attempt/copies/source_keys.py", "MAX_KEYS_PER_LOOKUP",
     "keys that the source is asked for over one connection"),
    Limit("consumer/attempt/copies/sweep.py", "MAX_QUICK_SWEEP_KEYS",
     "keys compared before another process does it"),
    Limit("consumer/attempt/readers/debezium.py", "LOG_REPEAT_MS",
     "milliseconds left to clocks, of a minute"),
    Limit("consumer/attempt/readers/debezium.py", "MAX_REMEMBERED", "rows of a log event in memory"),
    Limit("consumer/attempt/drivers/threads.py", "KEYS_PER_FETCH", "keys listed at a time"),
    Limit("consumer/attempt/evolution/machine.py", "MAX_ROUNDS",
     "tries at a change that others alter meanwhile"),
    Limit("consumer/attempt/readers/kafka_reader.py", "MAX_SLICE_RECORDS", "records read at a time"),
    Limit("consumer/attempt/spec.py", "SMALL_BATCH",
     "events in one transaction for all lanes; more of them go to the lanes"),
    Limit("consumer/attempt/transactions.py", "MAX_TRANSACTION_TRIES",
     "tries before the next attempt goes on"),
    Limit("consumer/attempt/transactions.py", "RESOLVE_TRIES", "tries before the next attempt goes on"),
    Limit("producer/snapshot/scheduler.py", "MAX_CONCURRENT_SNAPSHOTS",
     "tables whose chunks are read at a time"),
    Limit("producer/decoders/generate.py", "_PATTERNS", "compiled functions in memory"),
    Limit("producer/decoders/row_codec.py", "_MAX_COUNTERS", "compiled functions in memory"),
    Limit("producer/decoders/scalars.py", "_LIMIT", "texts in memory"),
)  # fmt: skip


def known_survivor(mutant: Mutant) -> str | None:
    """Return why a fresh mutant may survive; None: it is to be found."""
    return next((each.why for each in SURVIVORS if each[:3] == mutant[:3]), None) or _limit(mutant)


def _limit(mutant: Mutant) -> str | None:
    """Return why, of a mutant that is one more than a number of `LIMITS`."""
    pairs = zip(mutant.old.splitlines(), mutant.new.splitlines(), strict=False)
    changed = next((pair for pair in pairs if pair[0] != pair[1]), None)
    if changed is None or len(mutant.old.splitlines()) != len(mutant.new.splitlines()):
        return None
    for limit in LIMITS:
        number = re.compile(rf"\s*{limit.name}(: int)? = ([\d_]+)(?![\w ]*[-+*<(])")
        was, now = map(number.match, changed)
        if limit.file == mutant.file and was and now and int(now[2]) == int(was[2]) + 1:
            return f"{limit.why}: one more is as good"
    return None
