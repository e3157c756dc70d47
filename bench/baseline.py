"""The baseline of the capture benchmark: the plain loop that anybody would write first.

    python -m bench.baseline HOST PORT USER PASSWORD FILE POS BOOTSTRAP TOPIC EVENTS [--mariadb]

mysql-replication decodes, json.dumps encodes, confluent-kafka sends. Prints seconds from the first row to the
last acknowledgement, and peak memory in MiB, as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time

from confluent_kafka import Producer
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent


def main() -> None:
    host, port, user, password, file, pos, bootstrap, topic, events = sys.argv[1:10]
    stream = BinLogStreamReader(
        connection_settings={"host": host, "port": int(port), "user": user, "passwd": password},
        server_id=4242,
        blocking=True,
        resume_stream=True,
        log_file=file,
        log_pos=int(pos),
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        is_mariadb="--mariadb" in sys.argv,
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 20,
        }
    )
    expected, seen, started = int(events), 0, 0.0
    for event in stream:
        started = started or time.monotonic()
        for row in event.rows:
            before = row.get("before_values") or (
                row["values"] if isinstance(event, DeleteRowsEvent) else None
            )
            after = row.get("after_values") or (row["values"] if isinstance(event, WriteRowsEvent) else None)
            value = {
                "before": before,
                "after": after,
                "source": {
                    "table": event.table,
                    "file": stream.log_file,
                    "pos": stream.log_pos,
                    "ts": event.timestamp,
                },
            }
            send(producer, topic, str((after or before or {}).get("id")), json.dumps(value, default=str))
            seen += 1
        if seen >= expected:
            break
    producer.flush()
    seconds = time.monotonic() - started
    stream.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"events": seen, "seconds": seconds, "peak_mib": peak}))


def send(producer: Producer, topic: str, key: str, value: str) -> None:
    while True:
        try:
            producer.produce(topic, key=key, value=value, partition=0)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


if __name__ == "__main__":
    main()
