"""Spark's settings for a cluster, whose executors run on other machines than the agent, and the reasons."""

from __future__ import annotations

from schemas.config.spark import SparkConfig

UNPACKED = "rowlock"
"""The folder into which executors unpack `spark.package`, in their working folder."""


def build_cluster_settings(spark: SparkConfig) -> dict[str, str]:
    """Return the settings in which a cluster differs from a local master, the user's options included."""
    host = spark.driver.host or ""
    settings = {
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        "spark.driver.port": str(spark.driver.port),
        "spark.driver.blockManager.port": str(spark.driver.block_manager_port),
        # A slot takes a core as long as it runs; an executor without slots would only hold memory.
        "spark.cores.max": str(spark.slots),
        "spark.dynamicAllocation.enabled": "false",
        # A task that waits for a busy executor would wait for ever.
        "spark.locality.wait": "0",
        # A failure ends the query of this one slot, whose error names the host; SparkSlots starts it again.
        "spark.task.maxFailures": "1",
        # The streams of slots notice a loss within seconds. Spark frees the cores of a lost executor only
        # when it notices the loss itself, after two minutes by default.
        "spark.executor.heartbeatInterval": "3s",
        "spark.network.timeout": "20s",
        "spark.network.timeoutInterval": "5s",
        "spark.executor.heartbeat.maxFailures": "10",
        **spark.options,
    }
    if spark.package is not None:
        settings["spark.archives"] = f"{spark.package.as_uri()}#{UNPACKED}"
        settings["spark.executorEnv.PYTHONPATH"] = UNPACKED
    return settings


def build_cluster_environment(spark: SparkConfig) -> dict[str, str]:
    """Return the environment that Spark's driver needs for a cluster."""
    return {"PYSPARK_PYTHON": spark.python, "SPARK_LOCAL_IP": spark.driver.host or ""}
