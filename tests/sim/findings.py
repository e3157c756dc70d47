"""How many seeds the model needs to show that a rule is needed: python -m tests.sim.findings >
docs/explanation/model.md."""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path

from consumer.errors import ConsumerError
from tests.sim.attempt import Wrong
from tests.sim.rules import FINDINGS, without
from tests.sim.switches import switched_off
from tests.sim.world import PipelineSimulation

LIMIT = 150
HEAD = Path(__file__).with_name("model_head.md")
RULE = {
    "1": "LOW is not ahead of what the SELECT of a snapshot chunk sees",
    "2": "two events of a topic never share a position",
    "3": "a delivery failure purges what is in flight, and readers check `prev`",
    "4": "covered per lane; marks from the lowest lane",
    "5": "a layout changes only when all lanes stand equal",
    "6": "the guard compares attempt and offset, not only the epoch",
    "7": "the delete half of a key move runs in the old key's lane",
    "8": "an added column keeps topics of one table apart",
    "9": "a displaced row is written down",
    "10": "lanes by folded key",
    "11": "start from the progress rows, not from Spark's checkpoint",
    "14": "events and chunk markers of a lower gen are dropped",
    "16": "retry applies the final image, not the old events",
    "17": "after an error, halves by event order, not of the net change",
    "acknowledged": "a position is stored once Kafka has acknowledged all that lies before it",
    "window": "keys that the stream brings while a chunk is read are left out of it",
    "begin": "a chunk is read again unless its LOW reaches where the stream stood when it was planned",
    "emptied": "a chunk that was read before a TRUNCATE is read again",
    "purged": "a log of which files are purged that capture needs ends capture",
    "proofs": "a proof of the log whose file is purged is not asked for",
    "between": "a position lies between two transactions",
    "judged": "a statement that changes rows without row events stops its table",
    "stored": "a stop is stored with the position that moves past its cause",
    "said": "a stop is said in its topic",
    "remembered": "a start takes the stops from record and topics",
    "silent": "of a stopped table no row is encoded",
    "snapshot": "of a stopped table no chunk that was read is sent",
    "proven": "the catalogue's definition counts only where no statement on the table follows in the log",
    "xa": "XA COMMIT of a transaction that was prepared before capture began stops all tables",
    "prepared": "what is prepared is stored with the position",
    "at commit": "rows under XA PREPARE are published at XA COMMIT",
    "xa twice": "rows of an XA transaction have the same positions from memory and from the log",
    "xa chunk": "the place of XA COMMIT decides whether a chunk has seen the rows",
    "ends": "nothing is published of a transaction that is rolled back or only prepared",
    "savepoint": "what ROLLBACK TO SAVEPOINT takes back is not published",
    "again": "a second reading of the log knows what the first one found to be undone",
    "copy": "a stop of a table ends once its topic has the begin of a copy",
    "markers": "chunk markers before the begin of a copy do not count",
    "given up": "a copy that is given up stops the table again whose stop it had ended",
    "since": "every event that concerns a chunk of a copy stands behind its `since`",
    "ranges": "a range of keys is compared only where source and target order the key alike",
    "shown": "a row that the target finds under a living key lives, however the target shows its key",
    "together": "all lanes pass the marker of a copy's chunk in one transaction",
    "sweeps": "a transaction that deletes the rows that a copy lacks guards the unit's progress",
    "jump": "a unit that goes on at a copy takes the position of the begin's predecessor",
    "debt": "a key sweep pays for the statements before its begin alone",
    "seen": "what a key sweep reads is not older than the statement",
    "later rows": "a row that is written after the statement stays through the key sweep",
    "passed ranges": "a process that does not know which ranges its unit has passed reads the topic again",
    "older rows": "a row that was written before the chunk's `since` does not show that its key exists",
    "no copy": "no stopped unit goes on at the begin of a key sweep",
    "kept": "a kept row stays through every copy and key sweep",
    "kept debt": "until its debt is paid a unit that keeps removed rows deletes none that the source lacks",
    "kept skip": "a unit that skips events keeps what they may have removed",
    "kept again": "a kept key that is written again leaves the list",
    "tickets": 'tickets on before and after images ("Confirmed right")',
    "refused half": "of a key move that the target refuses only the refused half is held",
    "settled": "a delete is applied and ends what is held of its key",
    "recovers": "a held key recovers with its next row that the target accepts",
    "newest": "only the newest row of a held key is tried, once the lanes have drained",
    "pace": "a held key is not tried within a second of a refusal",
    "at last": "a held key that was not tried is tried without further records",
    "same fold": "each key that only queues after another one of its fold is tried for itself",
    "value": "a key that was refused for a unique value is tried again after later events",
    "cycle": "keys that wait for each other's unique values are written together",
    "clock": "the time up to which a source is captured comes from its server's clock",
    "quiet": "a time of the server counts once the log's end that was read after it is reached",
    "time first": "the server's time is read before the log's end",
    "all lanes": "one transaction for contended events moves all lanes",
    "parts": "a part of contended events moves no lane past an event that is left",
    "claim": "watermarks of a replaced capture process end at the announcement of its successor",
}


def seeds_needed(finding: str, limit: int = LIMIT) -> tuple[int, str] | None:
    """Return (seeds run until the first that goes wrong, what was wrong) without the rule of `finding`.

    Any error but the judge's and those that the product's code raises on purpose is one of the model, and is
    raised.
    """
    for seed in range(limit):
        try:
            with switched_off(finding):
                PipelineSimulation(seed, without(finding), finding).run()
        except (Wrong, ConsumerError, ValueError) as error:
            if not _on_purpose(error):
                raise
            return seed + 1, f"{type(error).__name__}: {error}"
    return None


def _on_purpose(error: Exception) -> bool:
    """Whether the judge or the product's code refuses what it sees. A ValueError that no `raise` of the
    product raises is the model's."""
    if isinstance(error, Wrong | ConsumerError):
        return True
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    reported = linecache.getline(frame.f_code.co_filename, line).lstrip().startswith("raise ")
    return reported and str(frame.f_globals["__name__"]).startswith("consumer.")


def main() -> None:
    print(HEAD.read_text().rstrip())
    print("\n| finding | rule switched off | seeds until a history goes wrong |\n|---|---|---|")
    for finding in FINDINGS:
        found = seeds_needed(finding)
        print(f"| {finding} | {RULE[finding]} | {found[0] if found else f'none in {LIMIT}'} |")


if __name__ == "__main__":
    main()
