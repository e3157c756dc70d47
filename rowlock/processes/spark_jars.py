"""Spark's Kafka source for the apply processes that a command starts."""

from __future__ import annotations

import os

import click

from deploy.embedded.errors import EmbeddedError
from deploy.embedded.fetch.downloads import fetch_spark_kafka_jars


def provide_spark_jars() -> None:
    """Give the apply processes Spark's Kafka source from rowlock's cache, which survives and is checked by checksum.

    Where it cannot be had, Spark's own way of fetching it is left, and its message if that fails, too.
    """
    if "ROWLOCK_SPARK_JARS" in os.environ:
        return
    try:
        os.environ["ROWLOCK_SPARK_JARS"] = ",".join(str(jar) for jar in fetch_spark_kafka_jars())
    except EmbeddedError as error:
        click.echo(f"rowlock: {error}", err=True)
