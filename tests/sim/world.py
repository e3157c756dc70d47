"""The whole way under one seed: sources, capture, topics, queries, target; faults; and the judge.

`PipelineSimulation(seed).run()` raises Wrong when, after any target commit, a row shows an older version than
it has shown or a state it never had, when a unique value is held twice, when something was removed silently,
or when at the end the target is not the source. Replay a seed with `python -m tests.sim.replay SEED
[FINDING]`.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
from structlog.testing import capture_logs

from consumer.attempt.reports import CopyNeed
from consumer.errors import ConsumerError, UniqueViolationError
from consumer.ordering.model import NetChange, QuarantineEntry, format_entry_key
from consumer.ordering.reasons import is_queued
from schemas.table.model import Row
from schemas.wire.codec import encode_copy_request
from schemas.wire.copies import CopyRequest, RepairLimits
from schemas.wire.position import LogPoint, parse_binlog_file_number
from tests.sim.attempt import Query
from tests.sim.binlog import Change, SourceRow
from tests.sim.capture import EVENTS, POSITIONS, REQUESTS, TOPICS, Capture, in_small, is_any_copy_due
from tests.sim.kafka import Broker, Topic
from tests.sim.rules import ALL, EMPHASIS, Rules
from tests.sim.source import Source
from tests.sim.source_times import SourceTimesJudge
from tests.sim.target import BRANCH, KEY, VERSION, RowKey, Steps, Target, entries, key_of, row_key
from tests.sim.topic_judge import TopicJudge
from tests.sim.truth import Wrong
from tests.sim.wire import DB

KEYS = ("a", "b", "c", "d", "e")
VALUES = ("x", "y", "z")
FOREIGN = "zz"
MAX_STEPS = 60_000
DEPTH = 3
"""How many capture tasks wait inside each other's waiting."""

_TABLE: Any = None  # the model's target has one table


class PipelineSimulation:
    def __init__(self, seed: int, rules: Rules = ALL, finding: str = "", *, verbose: bool = False) -> None:
        self.rng = rng = random.Random(seed)
        more = EMPHASIS.get(finding, {})
        self.rules, self.verbose = rules, verbose
        self.version = 0
        self.max_lanes = int(more.get("max_lanes", rng.randint(1, 4)))
        self.max_gather = int(more.get("max_gather", rng.choice((1, 2, 3, 4, 8))))
        self.max_pending = rng.choice((2, 50_000, 50_000))
        # events that one transaction may do for all lanes
        self.small_batch = min(int(more.get("small_batch", rng.choice((0, 0, 3, 8)))), self.max_gather)
        self.transactions = int(more.get("transactions", rng.randint(8, 25)))
        self.snapshot = rng.random() < more.get("snapshot", 0.6)
        self.truncates = more.get("truncates", rng.choice((0.0, 0.05)))  # share of the transactions
        self.undone = rng.choice((0.0, 0.1))  # share of the transactions that are rolled back
        self.others = more.get(
            "others", rng.choice((0.1, 0.3))
        )  # share of the changes to other tables than `t`
        self.statements = more.get(
            "statements", rng.choice((0.0, 0.0, 0.1, 0.25))
        )  # share of the transactions
        self.stops = more.get("stops", rng.choice((0.0, 0.4)))  # share of the statements that stop a table
        self.xa = more.get("xa", rng.choice((0.0, 0.0, 0.15)))  # share of the transactions
        self.savepoints = more.get("savepoints", rng.choice((0.0, 0.15)))  # share with a part that is undone
        self.crashes = more.get("crashes", rng.choice((0.0, 0.0, 0.05)))  # of the server, per transaction
        self.large = more.get("large", 0.3)  # share of the captures with little memory
        self.rotations = more.get("rotations", rng.choice((0.0, 0.15)))  # of the log's files, per transaction
        self.purges = rng.random() < more.get(
            "purges", 0.05
        )  # whether files go away that capture still needs
        self.prefill = int(more.get("prefill", 3))
        self.quarantine = rng.random() < more.get("quarantine", 0.3)
        self.poison = more.get("poison", 0.06)  # share of the changes that the target refuses then
        self.drift = not self.quarantine and rng.random() < 0.5
        self.faults = more.get("faults", rng.choice((0.0, 0.01, 0.02, 0.04)))
        self.moves = more.get("moves", 0.2)  # share of the updates that change the key
        self.max_batch = int(more.get("max_batch", 8))
        self.overlap = more.get(
            "overlap", 0.0
        )  # share of the faults that are retries beside a running attempt
        self.failing = more.get("failing", rng.choice((0.0, 0.0, 0.03)))  # share of the messages
        # Of its own, so that histories without copies are as they were without them.
        self.asking = random.Random(seed ^ 0x5EED)
        share = self.asking.choice((0.0, 0.0, 0.4)) if not finding else 0.0
        self.copies = more.get("copies", share)  # share of the transactions after which a copy is asked for
        # Of its own, too.
        self.removing = random.Random(seed ^ 0xD20B)
        share = self.removing.choice((0.0, 0.0, 0.2)) if not finding else 0.0
        self.removes = more.get("removes", share)  # share of the transactions before which rows are removed
        # Of its own, too.
        self.keeping = random.Random(seed ^ 0x4EE9)
        share = 0.0 if finding else 0.3
        self.keeps = self.keeping.random() < more.get("keeps", share)  # whether removed rows stay
        # Of its own, too.
        self.waiting = random.Random(seed ^ 0x3A17)
        share = 0.0 if finding else 0.25
        self.holds = self.waiting.random() < more.get("holds", share)  # `conflicts: quarantine`
        # Share of the changes that may take a value of u2 which another row of the source has.
        self.loose = more.get("loose", self.waiting.choice((0.0, 0.3))) if self.holds else 0.0
        self.coarse = self.waiting.random() < more.get("coarse", share)  # whether no two keys fold apart
        # Of its own, too: the clocks of the machines that capture.
        self.drifting = random.Random(seed ^ 0xD21F)
        self._asked = 0
        # Of its own, too: the share of waiting events above which one transaction applies them.
        waits = random.Random(seed ^ 0x1A9E5).choice((1.0, 0.3, 0.02))
        self.max_waits = more.get("max_waits", 1.0 if finding else waits)
        # Of its own, too: seconds that a step takes.
        self.pace = random.Random(seed ^ 0xC10C).choice((0.01, 0.05, 0.5))
        self.repairs = self.asking.random() < more.get("repairs", 0.7)  # whether stopped units get copies
        self._needed: set[tuple[str, int]] = set()
        self._depth = 0
        self.histories: dict[RowKey, list[Row | None]] = {}
        self.shown: dict[RowKey, int] = {}
        self.foreign: list[Row] = []
        self.backups: list[Any] = []
        self.target = Target(rules, rng, self._check)
        self.target.alike = self.asking.random() < more.get("alike", 0.5)
        # Whether two keys are one row's only if they are equal.
        self.one_case = random.Random(seed ^ 0x10C5).random() < more.get("one_case", 0.5)
        if self.asking.random() < more.get("shouts", 0.3):
            self.target.shown = str.upper
        self.target.trouble = rng.choice((0.0, 0.05, 0.15))
        self.target.revoked = rng.choice((0.0, 0.0, 0.01))
        mysql = rng.random() < 0.5
        self.sources = [Source(name, self, mysql=mysql) for name in ("A", "B")[: 1 + (rng.random() < 0.25)]]
        self.judges = [
            TopicJudge(source.histories, TOPICS, POSITIONS, source.inside) for source in self.sources
        ]
        self.times = [SourceTimesJudge(source.log) for source in self.sources]
        self.brokers = [
            Broker(lambda topic, message, judges=pair: [each.appended(topic, message) for each in judges])  # type: ignore[misc]
            for pair in zip(self.judges, self.times, strict=True)
        ]
        for broker in self.brokers:
            broker.ensure([EVENTS], {})
        self.topics = [broker.topics[EVENTS] for broker in self.brokers]
        self.captures: list[list[Capture]] = [[] for _ in self.sources]
        self._prefill()
        self.queries = [
            Query(self, topic, f"unit-{source.name}", self._branch(source))
            for source, topic in zip(self.sources, self.topics, strict=True)
        ]
        for n in range(len(self.sources)):
            self._assign(n)

    # --- what happens at the sources
    # ----------------------------------------------------------------------------------

    def _branch(self, source: Source) -> str:
        return source.name if self.rules.topics_are_kept_apart else ""

    def _prefill(self) -> None:
        """Rows from before the log, where there is a snapshot to bring them over."""
        for source in self.sources if self.snapshot else []:
            for number in range(self.rng.randint(0, self.prefill)):
                table = "t" if number % 3 != 2 else "x"
                change = self.random_change(source, table, self.rng)
                if change is not None and change[0] is None and change[1] is not None:
                    source.start_with(table, change[1])
                    if table == "t":
                        self.happened(source, None, change[1])

    def random_change(self, source: Source, table: str, rng: random.Random) -> Change | None:
        """Return a change that all unique indexes allow; two sources never hold one key or value of `t` at a
        time."""
        if table not in source.tables:
            return None
        old = source.tables[table].get(rng.choice(KEYS))
        locked = source.locked(table)
        if old is not None and any(old[0].lower() == row[0].lower() for row in locked):
            return None
        if old is not None and rng.random() < 0.25:
            return old, None
        key = self._case(rng.choice(KEYS)) if old is None or rng.random() < self.moves else old[0]
        key = key.lower() if self.one_case else key
        self.version += 1
        row = (key, self._value(rng, old, 1), self._value(rng, old, 2), self.version)
        if self._clashes(source, table, old, row):
            return None
        if table == "t" and self.quarantine and rng.random() < self.poison:
            self.target.poison.add(self.version)
        return old, row

    def _value(self, rng: random.Random, old: SourceRow | None, at: int) -> str | None:
        if old is not None and rng.random() < 0.4:
            return old[1] if at == 1 else old[2]
        return None if rng.random() < 0.25 else self._case(rng.choice(VALUES))

    def _case(self, text: str) -> str:
        return text.upper() if self.rng.random() < 0.3 else text

    def _clashes(self, source: Source, table: str, old: SourceRow | None, row: SourceRow) -> bool:
        for other in self.sources if table == "t" else [source]:
            for there in [*other.tables.get(table, {}).values(), *other.locked(table)]:
                if other is source and there is old:
                    continue
                unique = 2 if table == "t" and self.loose and self.waiting.random() < self.loose else 3
                same = [
                    a is not None and b is not None and a.lower() == b.lower()
                    for a, b in zip(row[:unique], there[:unique], strict=True)
                ]
                if any(same):
                    return True
        return False

    def happened(self, source: Source, before: SourceRow | None, after: SourceRow | None) -> None:
        """Note the states that rows had."""
        branch = self._branch(source)
        if before is not None and (after is None or before[0].lower() != after[0].lower()):
            self.histories.setdefault((branch, before[0].lower()), [None]).append(None)
        if after is not None:
            self.histories.setdefault((branch, after[0].lower()), [None]).append((*after, branch))

    def begun_at(self, source: Source) -> LogPoint | None:
        """Return where capture began, if it has."""
        return self.judges[self.sources.index(source)].start

    def source_step(self, source: Source) -> None:
        broker = self.brokers[self.sources.index(source)]
        begun = self.snapshot or (POSITIONS in broker.topics and broker.topics[POSITIONS].records)
        if not begun:  # without a snapshot nothing from before capture began is captured
            return
        if self.transactions and self.rng.random() < 0.6:
            self.transactions -= 1
            source.step(self.rng)
            if self.asking.random() < self.copies:
                self._ask(broker)
        elif self.rng.random() < 0.6:
            source.show()
        elif self.rng.random() < 0.3:
            self._purge(source)

    def _ask(self, broker: Broker) -> None:
        """Somebody asks for a copy of a table, or takes that back."""
        rng, self._asked = self.asking, self._asked + 1
        pipeline = rng.random() < 0.4
        table = rng.choice(("x", "t", "t", "n"))
        topic = broker.topics.get(TOPICS[table])
        request = CopyRequest(
            id=f"asked {self._asked}", db=DB, table=table, by="pipeline p" if pipeline else "operator",
            requested_ms=self._asked, limits=RepairLimits(max_rows=4, max_per_day=3) if pipeline else None,
            cause=rng.choice(("dropped", "value")),
            after=len(topic.records) - rng.randint(1, 5) if pipeline and topic is not None else None,
            cancel=not pipeline and rng.random() < 0.2 and not self.removes,
        )  # fmt: skip
        broker.ensure([REQUESTS], {})
        broker.append(REQUESTS, request.id.encode(), encode_copy_request(request))
        self.note(f"{request}")

    def needs_copy(self, query: Query, need: CopyNeed) -> None:
        """A unit asks for a copy, once for each stop; or a person does, whom nobody refuses."""
        broker, place = self.brokers[self.topics.index(query.topic)], (query.unit, need.after)
        if not self.repairs or place in self._needed:
            return
        self._needed.add(place)
        person = self.asking.random() < 0.6
        request = CopyRequest(
            id=f"{query.unit} {need.after}", db=DB, table="t", by="operator" if person else "pipeline p",
            requested_ms=self._asked, limits=None if person else RepairLimits(max_rows=1000, max_per_day=3),
            cause=need.cause, after=need.after,
        )  # fmt: skip
        broker.ensure([REQUESTS], {})
        broker.append(REQUESTS, request.id.encode(), encode_copy_request(request))
        self.note(f"{request}")

    def hint(self, query: Query) -> int | None:
        """Return where capture says that the last copy begins; sometimes nobody knows."""
        notified = self.captures[self.topics.index(query.topic)][-1].notified
        copy = None if notified is None else notified.copies.get(f"{DB}.t")
        return copy.offset if copy is not None and self.asking.random() < 0.7 else None

    def _purge(self, source: Source) -> None:
        """The server removes old files of its log: mostly such that nobody needs any more."""
        n = self.sources.index(source)
        stored = self.judges[n].stored
        if stored is None:
            return
        # One proof that is left is enough: without any the start is refused, as it should be.
        needed = max(
            (parse_binlog_file_number(proof.file) for proof in stored.proof),
            default=parse_binlog_file_number(stored.file),
        )
        if self.purges and not self.xa and self.rng.random() < 0.3:
            needed = source.binlog.end[0]
            for task in self.captures[n]:
                if not task.busy:
                    task.kill()
        prepared = (parse_binlog_file_number(place.file) for place in stored.prepared_at.values())
        needed = min([needed, *prepared])
        source.binlog.purged = max(source.binlog.purged, needed)

    def refused(self, task: Capture, why: str) -> None:
        """Capture says that a person must act: only because what it needs of the log is gone."""
        source = task.source
        n = self.sources.index(source)
        stored = self.judges[n].stored
        self.note(f"capture {source.name} is refused: {why}")
        if task is not self.captures[n][-1] or (stored is not None and 0 < task.gen < stored.gen):
            return  # a zombie, or one that a process assigned earlier and started later has replaced: what is stored is ahead of it  # noqa: E501
        places = [] if stored is None else [stored.file, max(proof.file for proof in stored.proof)]
        if all(parse_binlog_file_number(file) >= source.binlog.purged for file in places):
            raise Wrong(f"capture of {source.name} ends: {why}")

    # --- the judge
    # ----------------------------------------------------------------------------------------------------

    def _held_keys(self) -> set[RowKey]:
        return {key_of(msgspec.json.decode(held.key)) for _unit, held in self.target.held}

    def _check(self, touched: set[RowKey]) -> None:
        for query, times in zip(self.queries, self.times, strict=True):
            if query.unit in self.target.progress:  # a backup may be older than the unit
                times.check_applied(min(row.offset for row in self.target.lanes(query.unit)))
        held = self._held_keys() if self.target.held else set()
        seen: set[Any] = set()
        for row in self.target.committed.values():
            for entry in entries(row):
                if entry in seen:
                    raise Wrong(f"unique value {entry} is held twice: {self.target.committed}")
                seen.add(entry)
        for key in sorted(touched):
            state = self.target.committed.get(key)
            if key[1].startswith(FOREIGN) or (state is None and key in held):
                continue
            history, at = self.histories.get(key, [None]), self.shown.get(key, 0)
            if state is None and self._made_room(history[at]):
                continue
            found = next((i for i in range(at, len(history)) if history[i] == state), None)
            if found is None:
                raise Wrong(f"row {key} shows {state} behind state {at} of {history}")
            self.shown[key] = found
            self.note(f"shows {key} = {state}")

    def _made_room(self, row: Row | None) -> bool:
        """Whether a row was displaced that had changed unseen, by a statement or between a stop and the copy
        after it: another may have its unique value until its own comes again."""
        unseen = any(
            source.histories["t"].causes or source.histories["t"].removed for source in self.sources
        ) or any("t" in judge.skipped for judge in self.judges)
        return unseen and row in self.target.displaced

    def _stale(self) -> set[RowKey]:
        """Return the keys of rows that a statement removed and that no key sweep has deleted."""
        return {
            (self._branch(source), key)
            for source, judge, broker in zip(self.sources, self.judges, self.brokers, strict=True)
            for key in judge.found("t", broker.topics.get(EVENTS) or Topic()).stale
        }

    def _expected(self) -> dict[RowKey, Row]:
        """Return what the topics come to."""
        return {
            (self._branch(source), key): (*row, self._branch(source))
            for source, judge, broker in zip(self.sources, self.judges, self.brokers, strict=True)
            for key, row in judge.found("t", broker.topics.get(EVENTS) or Topic()).rows.items()
        }

    def _check_deleted(self) -> None:
        """What the source has deleted, also by a change of its key, needs no retry: neither a row nor an
        entry of it is left."""
        if self.keeps and self._has_skipped_to_a_stop():
            return  # nothing has shown the unit what it skipped
        alive = self._expected().keys() | self._listed_keys()
        rows = {key for key in self.target.committed if not key[1].startswith(FOREIGN)}
        if left := sorted((rows | self._held_keys()) - alive):
            raise Wrong(
                f"deleted at the source, and yet in the target or its quarantine: {left} "
                f"(rows {rows - alive}, entries {self._held_keys() - alive})"
            )
        texts = {(row[BRANCH], row[KEY]) for row in self._expected().values()}
        held = {tuple(msgspec.json.decode(held.key)) for _, held in self.target.held}
        if left := sorted(key for key in held - texts if key_of(key) not in self._listed_keys()):
            raise Wrong(f"the source has no key of this form, and yet entries do: {left}")

    def _has_skipped_to_a_stop(self) -> bool:
        found = [
            judge.found("t", broker.topics.get(EVENTS) or Topic())
            for judge, broker in zip(self.judges, self.brokers, strict=True)
        ]
        return any(each.skipped and each.stop is not None for each in found)

    def _check_recovered(self) -> None:
        """Each key with an entry has a final row that the target refuses, or its unit waits at a stop and
        will try it when it goes on."""
        if not (self.rules.retry_is_final_image and self.rules.deletes_settle):
            return
        last = {
            (query.unit, key_of(msgspec.json.decode(held.key))): (query.branch, held)
            for query in self.queries
            for unit, held in sorted(self.target.held, key=lambda each: (each[1].offset, each[1].part))
            if unit == query.unit and not (query.ended and is_queued(held))
        }
        fitting: dict[RowKey, Row] = {}
        for branch, held in last.values():
            row = _image(held, branch)
            if row is None or not (row[VERSION] in self.target.poison or self._meets_another(row)):
                raise Wrong(f"the target accepts {row}, which is in its quarantine: {held.error}")
            if row[VERSION] not in self.target.poison:
                fitting[row_key(row)] = row
        for key in fitting:
            if (together := self._list_needed_keys(key, fitting)) <= fitting.keys():
                raise Wrong(f"the target accepts together what is in its quarantine: {together}")

    def _list_needed_keys(self, key: RowKey, final: dict[RowKey, Row]) -> set[RowKey]:
        """Return `key` and the keys whose rows must give up a value before its final row fits."""
        found, waiting = {key}, [key]
        while waiting:
            row = final.get(each := waiting.pop())
            needed = set() if row is None else {*entries(row)}
            others = {key for key, other in self.target.committed.items() if needed & {*entries(other)}}
            waiting += others - found - {each}
            found |= others
        return found

    def _meets_another(self, row: Row) -> bool:
        """Whether another row of the target has a unique value of `row`, and no row is displaced."""
        others = [each for key, each in self.target.committed.items() if key != row_key(row)]
        taken = {entry for other in others for entry in entries(other)}
        return self.holds and not taken.isdisjoint(entries(row))

    def _listed_keys(self) -> set[RowKey]:
        """Return the keys that the target lists as kept."""
        return {key_of(msgspec.json.decode(key)) for _, key in self.target.kept}

    def _check_kept(self, actual: dict[RowKey, Row], expected: dict[RowKey, Row]) -> None:
        """Each row that a statement removed is there; each row that the source does not have is listed, and
        was removed by a statement unless its unit skipped events; no listed key has a row of the source."""
        listed, displaced = self._listed_keys(), {row_key(row) for row in self.target.displaced}
        for source, judge, broker in zip(self.sources, self.judges, self.brokers, strict=True):
            branch, found = self._branch(source), judge.found("t", broker.topics.get(EVENTS) or Topic())
            kept = {(branch, key) for key in found.kept}
            lost = kept - actual.keys() - displaced
            if lost and not (self.quarantine or self.holds):
                raise Wrong(f"a statement removed {lost}, and the target has not kept them")
            more = {key for key in actual.keys() - expected.keys() if key[0] == branch}
            if found.debt is None and (unlisted := more - listed):
                raise Wrong(f"the source does not have {unlisted}, and the target does not list them")
            if not found.skipped and (others := more - kept):
                raise Wrong(f"no statement removed {others}, and yet the target keeps them")
        held = self._held_keys() if self.holds else set()
        written = [row for key, row in expected.items() if key not in held]
        rows = {format_entry_key((row[BRANCH], row[KEY])) for row in written}
        both = rows & {key for _, key in self.target.kept}
        if both and self.target.shown("a") == "a":
            raise Wrong(f"the source has rows of {both}, which the target lists as kept")

    def _compare(self) -> None:
        for n, (judge, broker) in enumerate(zip(self.judges, self.brokers, strict=True)):
            refused = self.captures[n][-1].refused
            for table, topic in TOPICS.items():
                judge.at_the_end(
                    table, broker.topics.get(topic) or Topic(), snapshot=self.snapshot, refused=refused
                )
        expected, held = self._expected(), self._held_keys()
        actual = {key: row for key, row in self.target.committed.items() if not key[1].startswith(FOREIGN)}
        if self.keeps:
            self._check_kept(actual, expected)
        kept = actual.keys() - expected.keys() if self.keeps else set()
        waiting = held if self.holds else set()  # `_check_recovered` has judged them
        for key in self._stale() | kept | waiting:  # its row may have made room for another one
            actual.pop(key, None), expected.pop(key, None)
        if held and not self.holds:
            raise Wrong(f"held rows that the retry did not free: {held}")
        if actual != expected:
            raise Wrong(f"at the end the target has {actual}, the topics {expected}")
        for row in self.foreign:
            missing = (*self.target.displaced, *self.target.emptied)
            if row_key(row) not in self.target.committed and row not in missing:
                raise Wrong(f"{row} was removed silently")

    # --- faults
    # -------------------------------------------------------------------------------------------------------

    def _assign(self, n: int) -> None:
        """Assign a capture unit anew; its predecessor may go on as a zombie."""
        live = [task for task in self.captures[n][-1:] if not task.dead and self.rng.random() < 0.5]
        for task in self.captures[n]:
            if task not in live and self.rng.random() < 0.5:
                task.end()
            elif task not in live:
                task.kill()
        self.captures[n] = [*live, Capture(self.sources[n], self.brokers[n], self)]
        self.note(f"capture {self.sources[n].name} is assigned anew, {len(live)} goes on")

    def _fault(self) -> None:
        rng = self.rng
        n = rng.randrange(len(self.queries))
        query = self.queries[n]
        what = rng.choice(
            ("capture", "kill", "retry", "restart", "restart", "zombie", "backup", "backup", "restore")
        )
        what = "retry" if rng.random() < self.overlap else what
        self.note(f"fault: {what}")
        if what == "capture":
            self._assign(n)
        elif what == "kill" and query.live is not None:
            query.live.kill()
        elif what == "retry":
            query.retry()
        elif what in {"restart", "zombie"}:
            query.restart(kill=what == "restart")
        elif what == "backup":
            self.backups.append((self.target.backup(), dict(self.shown), list(self.foreign)))
        elif what == "restore" and self.backups:
            self._restore(rng.choice(self.backups))

    def _restore(self, backup: Any) -> None:
        for query in self.queries:
            query.restart(kill=True)
        self.target.restore(backup[0])
        self.shown, self.foreign = dict(backup[1]), list(backup[2])

    def _drift(self) -> None:
        """Someone else writes a row into the target that holds a value of the sources'."""
        value = self.rng.choice(VALUES)
        row: Row = (f"{FOREIGN}{len(self.foreign)}", value, None, 0, self._branch(self.sources[0]))
        if self.target.locks or any(entry in self.target.unique for entry in entries(row)):
            return
        self.target.rows[row_key(row)] = self.target.committed[row_key(row)] = row
        for entry in entries(row):
            self.target.unique[entry] = row_key(row)
        self.foreign.append(row)

    # --- the run
    # ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end; raises Wrong, or whatever the core raised."""
        # What the product says of quarantine and drift is not shown.
        with capture_logs(), in_small():
            self._run()

    def _run(self) -> None:
        for _ in range(MAX_STEPS):
            if self.rng.random() < self.faults:
                self._fault()
            self._step()
            if not self.transactions and self.rng.random() < 0.005:
                break
        self._quiet()
        self._check_deleted()
        self._check_recovered()
        self._retry_held()
        self._compare()

    def _step(self) -> None:
        rng = self.rng
        self.target.now_s += self.pace
        n = rng.randrange(len(self.sources))
        luck = rng.random()
        if luck < 0.08:
            self.source_step(self.sources[n])
        elif luck < 0.3:
            task = rng.choice(self.captures[n])
            if task.dead:
                if task is self.captures[n][-1] and (not task.refused or rng.random() < 0.02):
                    self._assign(n)
            elif not task.busy:
                task.step()
        elif luck < 0.31 and self.drift and len(self.foreign) < 3:
            self._drift()
        else:
            self.queries[n].step(rng)

    def _quiet(self) -> None:
        """No more faults: everything must come through by itself, also once more from the progress rows."""
        self.faults = self.failing = self.target.trouble = self.target.revoked = 0.0
        self.drift = False
        for source in self.sources:
            source.go_on()  # something may wait for that
            while source.visible < len(source.log):
                source.show()
        for n in range(len(self.sources)):
            self._assign(n)
            for task in self.captures[n][:-1]:
                task.kill()
            self.captures[n] = self.captures[n][-1:]
        self._until(
            lambda: (
                all(
                    (tasks[-1].idle and self._all_asked(n)) or tasks[-1].refused
                    for n, tasks in enumerate(self.captures)
                )
                and all(q.idle for q in self.queries)
            )
        )
        self._check_recovered()  # also without the attempt that a start makes
        for query in self.queries:
            query.restart(kill=True)
        self._until(lambda: all(query.idle for query in self.queries))

    def _all_asked(self, n: int) -> bool:
        """Whether capture has taken in all requests and stored that, and no copy is under way: its last
        watermark may be older."""
        stored, topics = self.judges[n].stored, self.brokers[n].topics
        return (
            stored is not None
            and stored.copy_requests == (len(topics[REQUESTS].records) if REQUESTS in topics else 0)
            and not is_any_copy_due(stored)
        )

    def _until(self, done: Any) -> None:
        for _ in range(MAX_STEPS):
            if done():
                return
            self._step()
        raise Wrong("it does not come to an end")

    def meanwhile(self) -> None:
        """Let others run while a capture task waits."""
        if self._depth < DEPTH and self.rng.random() < 0.5:
            self._depth += 1
            try:
                if self.rng.random() < self.faults:
                    self._fault()
                self._step()
            finally:
                self._depth -= 1

    # --- quarantine
    # ---------------------------------------------------------------------------------------------------

    def _retry_held(self) -> None:
        """An operator has mended what the target refused, and retries everything that is held."""
        if self.holds:  # a row of another key may stay in the way of one
            return
        self.target.poison = set()
        for query in self.queries:
            held = sorted(
                (h for unit, h in self.target.held if unit == query.unit), key=lambda h: (h.offset, h.part)
            )
            if held:
                _finish(
                    self._final_images(query, held)
                    if self.rules.retry_is_final_image
                    else self._replay(query, held)
                )

    def _final_images(self, query: Query, held: list[QuarantineEntry]) -> Steps:
        """The final image of every held key, at the unit's present position."""
        last: dict[RowKey, Row | None] = {}
        keys = {tuple(msgspec.json.decode(entry.key)) for entry in held}
        for entry in held:
            last[key_of(msgspec.json.decode(entry.key))] = _image(entry, query.branch)
        net = NetChange(_TABLE, sorted(keys), [row for row in last.values() if row is not None])
        displacing = "retry" if self.keeps else None  # a row that stays may have a value of theirs
        yield from self._transact(query, net, displacing, {entry.folded for entry in held})

    def _replay(self, query: Query, held: list[QuarantineEntry]) -> Steps:
        """Rule 16 off: the queued events, one after the other."""
        for entry in held:
            row = _image(entry, query.branch)
            net = NetChange(_TABLE, [tuple(msgspec.json.decode(entry.key))], [] if row is None else [row])
            yield from self._transact(query, net, "retry", set())
        yield from self._transact(query, NetChange(_TABLE), None, {entry.folded for entry in held})

    def _transact(self, query: Query, net: NetChange, displacing: str | None, released: set[str]) -> Steps:
        txn = yield from self.target.open(self, query.unit, self.target.lanes(query.unit))
        try:
            yield from self.target.apply(txn, net, displacing)
            txn.released = released
            yield from self.target.commit(txn)
        except UniqueViolationError as error:
            self.target.rollback(txn)
            raise Wrong(f"retry met {error}") from error
        except ConsumerError:
            self.target.rollback(txn)
            raise

    def note(self, text: str) -> None:
        if self.verbose:
            print(text)


def _image(entry: QuarantineEntry, branch: str) -> Row | None:
    """What a held entry leaves of its key: an event's after image, but nothing for the first half of a key
    move."""
    event = msgspec.json.decode(entry.event)
    before, after = event.get("before"), event.get("after")
    if after is None or (before is not None and before["k"] != after["k"] and entry.part == 0):
        return None
    return (*after.values(), branch)


def _finish(steps: Steps) -> None:
    for _ in steps:
        pass


def run_seed(seed: int) -> int:
    """Run one seed to its end; returns 1. Raises what went wrong, with how to replay it."""
    try:
        PipelineSimulation(seed).run()
    except Exception as error:
        error.add_note(f"replay: python -m tests.sim.replay {seed}")
        raise
    return 1
