"""Spark's Kafka source for the apply processes that a command starts."""

from __future__ import annotations

import os

import click

from deploy.errors import EmbeddedError
from deploy.fetch.downloads import fetch_spark_kafka_jars


def provide_spark_jars() -> None:
    """Provide Spark's Kafka source from rowlock's cache, which is permanent and verified by checksum.

    If it is not available, Spark fetches it in its own way, and reports its own error if that fails too.
    """
    if "ROWLOCK_SPARK_JARS" in os.environ:
        return
    try:
        os.environ["ROWLOCK_SPARK_JARS"] = ",".join(str(jar) for jar in fetch_spark_kafka_jars())
    except EmbeddedError as error:
        click.echo(f"rowlock: {error}", err=True)
