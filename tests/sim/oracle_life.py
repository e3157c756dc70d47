"""A life of capture of the model's Oracle: processes that are killed and replaced, over the simulation's
Kafka, and the judgement of its topic."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

from producer.errors import CaptureError
from producer.loop.loop import CaptureLoop
from producer.sources.chunk_data import ChunkFailed, ChunkRead, ChunkRefused, ReadChunk
from producer.sources.oracle.chunks import OracleChunkReader
from producer.sources.oracle.log import PollPace
from producer.sources.oracle.source import OracleSource
from schemas.config.model import Config
from schemas.wire.codec import decode_event, decode_watermark
from schemas.wire.records import (
    Watermark,
    decode_claim_key,
    format_former_table_topic,
    format_watermark_topic,
)
from tests.kits.capture import replay, row_that_goes_back
from tests.kits.oracle_site import POSITIONS, PREFIX, Asked, OracleSite
from tests.sim.kafka import Broker, Client, Message
from tests.sim.kafka import KilledError as KilledInKafkaError
from tests.sim.oracle import TABLE, Kind, ModelOracle, killed_at
from tests.stands.oracle_source import OWNER, KilledError

_KILLED = (KilledError, KilledInKafkaError)
_POLL_ROWS = 5
_WATERMARKS = format_watermark_topic(PREFIX, "s")


class Reader:
    """`ChunkQueue`: a chunk is read when it is asked for or a while later, and answered later still; no
    thread."""

    def __init__(self, chunks: OracleChunkReader, rng: random.Random) -> None:
        self._chunks, self._rng = chunks, rng
        self._asked: list[ReadChunk] = []
        self._answers: list[ChunkRead | ChunkFailed | ChunkRefused] = []

    def submit(self, request: ReadChunk) -> None:
        self._asked.append(request)
        self._maybe_read()

    def poll_answer(self) -> ChunkRead | ChunkFailed | ChunkRefused | None:
        self._maybe_read()
        return self._answers.pop(0) if self._answers and self._rng.random() < 0.5 else None

    def close(self) -> None: ...

    def _maybe_read(self) -> None:
        if self._asked and self._rng.random() < 0.5:
            self._answers.append(self._chunks.read_chunk(self._asked.pop(0)))


class Source(OracleSource):
    rng: random.Random

    def make_chunk_queue(self, chunks: OracleChunkReader) -> Reader:
        return Reader(chunks, self.rng)


class Process:
    """One process of capture. `dead`: it was killed, or has ended."""

    def __init__(self, life: Life) -> None:
        self._life, self.dead, self.notified = life, False, list[Watermark]()
        self.source = life.source(life.config("a"))
        self._client = Client(life.broker, life.rng, life.failing, life.meanwhile)
        self._loop: CaptureLoop | None = None

    def step(self) -> None:
        """Start, or go one step on; killed at any moment, or ended by an error, it is dead."""
        if self.dead:
            return
        life = self._life
        life.oracle.notified = life.moment
        try:
            if self._loop is None:
                self._loop, self.notified = life.start(self.source, life.config("a"), self._client)
            life.step(self._loop)
        except _KILLED:
            self._end()
        except CaptureError:
            with suppress(CaptureError, *_KILLED):
                if self._loop is not None:
                    self._loop.shut_down("an error", restarts=True)
            self._end()
        finally:
            life.oracle.notified = lambda _sql: None

    def leave(self) -> None:
        """Stop as one that was asked to."""
        if not self.dead and self._loop is not None:
            with suppress(CaptureError):
                self._loop.shut_down("asked to", restarts=False)
        self._end()

    def _end(self) -> None:
        self.dead = True
        self._client.end(share=self._life.rng.random())
        if self._loop is not None:
            self._loop.close()
        self.source.close()


class Life(OracleSite):
    """`run` lives it, and `wrong` says what is wrong with what became of it."""

    def __init__(self, seed: int, kind: Kind) -> None:
        self.rng = random.Random(seed)
        self.oracle, self.kind = ModelOracle(self.rng, kind), kind
        self.broker, self.now, self.requests = Broker(self._note), 0.0, Asked()
        self._newest_gen, self._published, self._too_late = 0, set[int](), ""
        self.calm = False
        self.moment = killed_at(1 << 30)
        self.oracle.meanwhile = self.meanwhile
        self.oracle.fails = lambda: not self.calm and self.rng.random() < 0.03

    def source(self, config: Config) -> Source:
        pace = PollPace(_POLL_ROWS, 0.0, lambda: self.now, lambda _seconds: None)
        made = Source(config.sources["s"], "s", self.oracle.driver(), pace)
        made.rng = self.rng
        return made

    def _note(self, topic: str, message: Message) -> None:
        """Compare the time in each watermark with the commits of which the topic has no row yet."""
        value = message.value()
        if topic == _WATERMARKS and value is None:
            self._newest_gen = max(self._newest_gen, decode_claim_key(message.key()) or 0)
        elif value is None or topic == POSITIONS:
            return
        elif topic == _WATERMARKS:
            mark = decode_watermark(value)
            missing = self.oracle.committed - self.oracle.old - self._published
            late = [row for row in missing if self.oracle.committed_ms[row] < mark.commit_ts_ms]
            if late and mark.gen >= self._newest_gen:
                self._too_late = f"captured up to {mark.commit_ts_ms}, it says, but without the rows {late}"
        elif (logged := decode_event(value).log) is not None:
            self._published.update(logged_row[1] for logged_row in logged.rows)

    def failing(self) -> float:
        return 0.0 if self.calm else 0.004

    def meanwhile(self) -> None:
        """Others write while capture waits for Oracle or for Kafka."""
        while not self.calm and self.rng.random() < 0.4:
            self.oracle.write()

    def run_all(self) -> None:
        for _ in range(6):
            self.oracle.write()
        process = Process(self)
        for _ in range(self.rng.randint(4, 8)):
            self.moment = killed_at(self.rng.randint(5, 260))
            others = [process, Process(self)] if self.rng.random() < 0.3 else [process]
            for _ in range(self.rng.randint(3, 14)):
                for each in others:
                    if self.rng.random() < 0.7:
                        each.step()
            process = others[-1]
            if process.dead or self.rng.random() < 0.3:
                process.leave()
                process = Process(self)
        process.leave()
        self._rest()

    def _rest(self) -> None:
        """Nobody writes any more, and nothing is killed: everything arrives."""
        self.oracle.settle()
        self.calm, self.moment = True, killed_at(1 << 30)
        process = Process(self)
        for _ in range(400):
            process.step()
            if process.dead:
                process = Process(self)
            elif (
                process.notified
                and process.notified[-1].idle
                and not process.notified[-1].snapshot_pending
                and not self.oracle.log
            ):
                break
        process.leave()

    def wrong(self) -> str:
        """Return what is wrong; "": nothing."""
        if self._too_late:
            return self._too_late
        topic = self.broker.topics.get(format_former_table_topic(PREFIX, "s", OWNER, TABLE))
        found = [(each.key(), decode_event(each.value() or b"")) for each in topic.records] if topic else []
        if (back := row_that_goes_back(found)) is not None:
            return back
        try:
            result = replay([event for _, event in found])
        except AssertionError as gap:
            return str(gap)
        logged = Counter(row for event in result.accepted if event.log for row in event.log.rows)
        if twice := [row for row, times in logged.items() if times > 1]:
            return f"rows of the log in two events: {twice}"
        images = [event.after for event in result.accepted if event.after is not None]
        if self.kind == "lob" and any(int(str(row["note"])[1:]) < int(str(row["version"])) for row in images):
            return "a LOB is older than its row"
        stops = [event.stop.reason for event in result.accepted if event.stop is not None]
        if stops:
            return f"stopped: {stops}"
        lost = self.oracle.committed - self.oracle.old - {sequence for _, sequence in logged}
        if lost := lost - {
            row.sequence for row in self.oracle.log.values()
        }:  # also where a later change of the row has healed it
            return f"rows of the log in no event: {sorted(lost)}"
        rows = {int(str(row["id"])): row for row in result.tables.get((OWNER, TABLE), {}).values()}
        if {id_: int(str(row["version"])) for id_, row in rows.items()} != self.oracle.rows:
            return f"the topic has other rows than the source: {rows} for {self.oracle.rows}"
        if self.kind == "lob" and any(row["note"] != f"n{row['version']}" for row in rows.values()):
            return f"a LOB is another one: {rows}"
        return f"{len(self.oracle.log)} rows are left in the log" if self.oracle.log else ""


def judged(seed: int, kind: Kind) -> str:
    """Return what is wrong with the life of a seed. An error of the product's is one, too."""
    life = Life(seed, kind)
    try:
        life.run_all()
    except Exception as error:  # noqa: BLE001 - a rule that is switched off shows so, too
        return f"{type(error).__name__}: {error}"
    return life.wrong()
