"""One `rowlock run` from two databases to topics of all five formats and to a database at once, through a
target that is down and kills of driver and broker; each topic is judged by its route.

The judge (tests/topics) knows nothing of the product: every record of every topic is compared, and every
value.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from rowlock.cli import main
from tests.kits.kafka_target import make_topic
from tests.kits.running import Run, running, source_config, target_config, write_config
from tests.topics.expected import SourceHistory, Written
from tests.topics.journal import COLUMNS, Journal
from tests.topics.judge import judge
from tests.topics.records import whole_topic
from tests.topics.site import Followed, followed, under_load

pytestmark = pytest.mark.timeout(600)

SALT = "pepper"
#: Of both sources, the others of the first alone.
MERGED = "t_rowlock"


def routes(prefix: str) -> dict[str, Written]:
    """Source table → what is written of it, and where."""
    return {
        MERGED: Written(
            f"head{prefix}.merged", key=("branch", "id"), partitions=3, masks={"owner": "sha256"}, salt=SALT,
            branch=True,
        ),
        "t_debezium": Written(
            f"head{prefix}.some", "debezium", partitions=2, partitioner="crc32",
            where={"town": ["ulm", "köln"]}, tombstones=False,
        ),
        "t_schemas": Written(f"head{prefix}.by_town", "debezium-schemas", key=("town", "id")),
        "t_canal": Written(
            f"head{prefix}.few", "canal-json", columns=("id", "version", "amount", "owner", "town"),
            masks={"owner": "***"}, partitions=2,
        ),
        "t_plain": Written(
            f"head{prefix}.plain", "plain", key=("town", "id"), partitions=4, partitioner="crc32",
            masks={"town": "sha256"}, salt=SALT,
        ),
        "t_towns": Written(f"head{prefix}.towns", key=("town",), where={"owner": [None]}, tombstones=False),
    }  # fmt: skip


@dataclass
class Site:
    run: Run
    sources: dict[str, Journal]
    topics: dict[str, Followed]
    postgres: PostgreSQL
    db: str

    def target_rows(self) -> list[tuple[object, ...]] | None:
        """The rows of the target database with their source; None: it does not answer, or they are not there
        yet."""
        try:
            found = self.postgres.execute(
                f"SELECT branch, {', '.join(COLUMNS)} FROM {MERGED}", database=self.db
            )
        except Exception:  # noqa: BLE001
            return None
        return sorted(map(tuple, found))

    def call(self, *command: str) -> Result:
        """Run a command of rowlock's that lists."""
        return CliRunner().invoke(main, [*command, "--output", "json", "-c", str(self.run.config)])

    def equal(self) -> bool:
        rows = [
            (name, *(row[column] for column in COLUMNS))
            for name, source in self.sources.items()
            for row in source.rows(MERGED)
        ]
        return self.target_rows() == sorted(rows)


@pytest.fixture
def site(
    mariadb: MariaDB, mariadb2: MariaDB, kafka: Kafka, postgres: PostgreSQL, unique: str, tmp_path: Path
) -> Iterator[Site]:
    written = routes(unique)
    servers, tables = {"b1": mariadb, "b2": mariadb2}, {"b1": tuple(written), "b2": (MERGED,)}
    sources = {}
    for seed, (name, server) in enumerate(servers.items()):
        server.create_database(unique)
        sources[name] = Journal(server, unique, tables[name], seed)
        sources[name].prepare()
    postgres.create_database(unique)
    merged = {"from": f"*.{MERGED}", "to": "public.{table}", "add": {"branch": "{source}"}}
    config = write_config(
        tmp_path,
        kafka={"bootstrap": kafka.bootstrap, "prefix": unique},
        sources={name: source_config(server, "mariadb", unique) for name, server in servers.items()},
        targets={
            "feed": {"type": "kafka", "bootstrap": kafka.bootstrap, "prefix": f"{unique}.feed",
             "mask_salt": SALT},
            "hq": target_config(postgres, "postgres", unique),
        },
        pipelines={
            "out": {
                "sources": list(servers), "target": "feed", "commit_every": 0.5,
                "routes": [each.route(f"{unique}.{table}") for table, each in written.items()],
            },
            "to-hq": {"sources": list(servers), "target": "hq", "lanes": 2, "routes": [merged]},
        },
    )  # fmt: skip
    topics = {
        table: Followed(kafka, each, table, sources if each.branch else {"b1": sources["b1"]})
        for table, each in written.items()
    }
    try:
        with followed(topics.values()), running(config, tmp_path) as run:
            yield Site(run, sources, topics, postgres, unique)
    finally:
        for drop in (mariadb.drop_database, mariadb2.drop_database, postgres.drop_database):
            with contextlib.suppress(Exception):
                drop(unique)


def test_every_format_and_a_database_have_what_their_sources_did(
    site: Site, kafka: Kafka, mariadb: MariaDB
) -> None:
    site.run.until(site.equal, "the snapshot in the database", 240)
    for each in site.topics.values():
        each.ends(f"the snapshot; see {site.run.log}")
    merged = site.topics[MERGED]
    with under_load(list(site.sources.values()), 100):
        merged.goes_on(50, "load")
        site.postgres.stop()
        merged.goes_on(100, "the other target is down")
        site.postgres.start()
        (driver, *_) = site.run.find("consumer.main")
        psutil.Process(driver.pid).kill()
        merged.goes_on(50, "the driver was killed")
        kafka.kill()  # of the store as well
        kafka.start()
        for source in site.sources.values():
            source.empty()
        merged.goes_on(50, "the broker was killed, and the tables were emptied")
        site.sources["b1"].widen()
        merged.goes_on(50, "the tables of one source have got a column")
    for each in site.topics.values():
        each.ends(f"all of the load; see {site.run.log}")
    site.run.until(site.equal, "the database that was down", 240)
    status = site.call("status")
    assert {unit["state"] for unit in json.loads(status.stdout)["units"]} == {"current"}, status.output
    verified = site.call("verify")
    found = [json.loads(line) for line in verified.stdout.splitlines()]
    assert len(found) == 2 + len(site.topics) + 1, "both sources of the merged topic, and of the database"
    assert verified.exit_code == 0, verified.output
    copied_again(site, mariadb)
    assert site.run.stop() == 0
    mariadb.execute(f"DELETE FROM {MERGED} ORDER BY id LIMIT 1", database=site.db)  # behind rowlock's back
    verified = site.call("verify", "--settle", "5")
    found = [json.loads(line) for line in verified.stdout.splitlines()]
    differing = [[one["kind"] for one in each["differences"]] for each in found if not each["equal"]]
    assert (verified.exit_code, differing) == (1, [["extra"]] * 2), "in the topic and in the database"


def copied_again(site: Site, server: MariaDB) -> None:
    """What a source changed without a record in its log, `rowlock copy` brings to every topic and table of
    it."""
    desired = 1  # the database
    for table, topic in site.topics.items():
        rows = sorted(site.sources["b1"].rows(table), key=lambda row: int(row["id"]))
        desired += any(map(topic.written.inside, [*rows[:2], *rows[-2:]]))
        with server.connect(database=site.db) as connection:
            cursor = connection.cursor()
            cursor.execute("SET SESSION sql_log_bin = 0")
            cursor.execute(f"DELETE FROM {table} ORDER BY id LIMIT 2")
            cursor.execute(f"UPDATE {table} SET version = version + 1000 ORDER BY id DESC LIMIT 2")
            connection.commit()
    verified = site.call("verify", "--settle", "5")
    differing = [one for one in map(json.loads, verified.stdout.splitlines()) if not one["equal"]]
    assert len(differing) == desired, verified.output
    for table in site.topics:
        asked = CliRunner().invoke(
            main, ["copy", f"{site.db}.{table}", "--source", "b1", "-c", str(site.run.config)]
        )
        assert asked.exit_code == 0, asked.output
    site.run.until(lambda: site.call("verify", "--settle", "5").exit_code == 0, "the copies", 240)


def test_the_judge_sees_a_record_of_a_transaction_that_was_taken_back(kafka: Kafka, unique: str) -> None:
    """Where a reader of all records finds it, and one of committed records does not."""
    make_topic(kafka, unique)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": unique})
    producer.init_transactions(30)
    for value, end in (
        (b'{"id": 1, "version": 1}', producer.commit_transaction),
        (b'{"id": 1, "version": 2}', producer.abort_transaction),
    ):
        producer.begin_transaction()
        producer.produce(unique, value, b'{"id": 1}')
        producer.flush(30)
        end(30)
    written = Written(unique, "plain")
    row = {"id": 1, "version": 1}

    def seen(*, committed: bool) -> list[str]:
        records = whole_topic(kafka.bootstrap, unique, committed=committed)
        return judge(written, records, {"b": SourceHistory([row])}, {"b": [row]})

    assert seen(committed=True) == []
    assert seen(committed=False)[0] == 'not of the source: {"id": 1}: ["u", null, {"id": 1, "version": 2}]'
