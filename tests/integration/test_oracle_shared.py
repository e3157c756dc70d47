"""The rules for a log from which others refresh their views, too, on Oracle's stand (a).

A refresh lets Oracle purge every row that was committed until it ran, so rowlock has two views, and refreshes
one only when Kafka has all the rows that this may purge. Before every statement of capture others may commit,
be refreshed (which stamps and purges), register or leave, and the clock may go on; capture is killed at any
statement. The judge: each row of the log that ever was committed is published, once, in an order that ends
with the table's rows; and the log is emptied. Each rule is switched off, and found.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from deploy.embedded.services import PostgreSQL
from producer.sources.oracle.catalog import OracleCatalog
from producer.sources.oracle.mlog import LogBrokenError
from producer.sources.oracle.session import OracleSession
from tests.kits.oracle_shared import OWN, SWITCHED_OFF, Acknowledged, SharedCapture, table_of
from tests.kits.oracle_site import NUMBER, WIDE, Writers
from tests.stands.oracle_source import OWNER, KilledError, OracleStand

SEEDS, ROUNDS = 6, 40
LOG = f'"{OWNER}"."MLOG$_a"'
OTHERS = ("SALES_MV", "RISK_MV")
_AUDIT = """
CREATE TABLE audit (sequence numeric);
CREATE FUNCTION audited() RETURNS trigger LANGUAGE plpgsql AS
    $body$ BEGIN INSERT INTO audit VALUES (NEW."SEQUENCE$$"); RETURN NULL; END $body$;
"""


@pytest.fixture
def judged(postgres: PostgreSQL, unique: str) -> Iterator[Callable[[int], str]]:
    """Return what lives a seed, and says what is wrong."""
    postgres.create_database(unique)
    stand = OracleStand(lambda **options: postgres.connect(unique, **options))
    stand.do(_AUDIT)
    yield lambda seed: lived(stand, seed)
    stand.close()
    postgres.drop_database(unique)


class Life:
    """One seed. `wrong`: what is wrong with what became of it."""

    def __init__(self, stand: OracleStand, seed: int) -> None:
        self.stand, self.rng, self.second = stand, random.Random(seed), 1
        stand.create("a", {"id": NUMBER, "version": WIDE})
        stand.do("TRUNCATE audit")
        stand.do(f"CREATE TRIGGER audited AFTER INSERT ON {LOG} FOR EACH ROW EXECUTE FUNCTION audited()")
        self.session = OracleSession(stand.driver())
        ((_, logged),) = OracleCatalog(self.session).examine_tables([(OWNER, "a")]).values()
        assert logged is not None
        stand.set_clock(self.second)
        for name in OWN:
            stand.create_view("a", name)
        self._tick()
        self.topic = Acknowledged([])
        self.capture = SharedCapture(self.session, logged, self.topic)
        self.writers, self.others = Writers(stand, seed), list[str]()

    def _tick(self) -> None:
        self.second += 1
        self.stand.set_clock(self.second)

    def _meanwhile(self, sql: str) -> None:
        if self.rng.random() < 0.02:
            raise KilledError
        if sql == "COMMIT":  # of a refresh, for which others wait
            return
        for _ in range(self.rng.randint(0, 3)):
            draw = self.rng.random()
            if draw < 0.4:
                self.writers.go_on()
            elif draw < 0.65:
                self._tick()
            elif draw < 0.95 and self.others:
                self.stand.do("SELECT refresh(%s)", (self.rng.choice(self.others),))
            else:
                self._come_or_go()

    def _come_or_go(self) -> None:
        name = self.rng.choice(OTHERS)
        if name in self.others:
            self.stand.drop_view(name)
            self.others.remove(name)
        else:
            self.stand.create_view("a", name)
            self.others.append(name)

    def leave(self) -> None:
        self.session.close()
        self.stand.before = lambda _sql: None
        self.stand.drop_views()
        self.stand.drop("a")

    def live(self) -> None:
        self.stand.before = self._meanwhile
        for _ in range(ROUNDS):
            try:
                self.capture.round()
            except KilledError:
                self.session.close()
        self.stand.before = lambda _sql: None
        self.writers.settle()
        for _ in range(8):
            self._tick()
            for name in self.others:
                self.stand.do("SELECT refresh(%s)", (name,))
            self.capture.round()

    def wrong(self) -> str:
        published = Counter(place.sequence for place in self.topic.places())
        committed = {int(number) for (number,) in self.stand.do("SELECT sequence FROM audit")}
        if lost := committed - set(published):
            return f"purged unread: {sorted(lost)}"
        if twice := [number for number, times in published.items() if times > 1]:
            return f"published twice: {twice}"
        rows = {int(id_): int(version) for id_, (version,) in table_of(self.topic).items()}
        if rows != (now := dict(self.stand.do(f'SELECT id::int, version::int FROM "{OWNER}"."a"'))):
            return f"other rows: {rows} for {now}"
        return "the log is not emptied" if self.stand.logged("a") else ""


def lived(stand: OracleStand, seed: int) -> str:
    life = Life(stand, seed)
    try:
        life.live()
        return life.wrong()
    except LogBrokenError as error:  # half of an update was purged
        return str(error)
    finally:
        life.writers.end()
        life.leave()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_purged_that_kafka_does_not_have(judged: Callable[[int], str], seed: int) -> None:
    assert judged(seed) == ""


# --- rules that are switched off


@pytest.mark.parametrize("rule", SWITCHED_OFF)
def test_a_rule_that_is_switched_off_is_found(judged: Callable[[int], str], rule: str) -> None:
    where, name, instead = SWITCHED_OFF[rule]
    with mock.patch.object(where, name, instead):
        assert any(judged(seed) for seed in range(5 * SEEDS))
