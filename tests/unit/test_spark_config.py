"""The section `spark`: what a cluster needs, and which of Spark's settings can be given."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer.spark.cluster import build_cluster_environment, build_cluster_settings
from consumer.spark.query import find_host
from consumer.spark.versions import VERSION_REMEDIES, collect_versions, explain_difference
from schemas.config.model import Config, ConfigErrors, load_config

SERVERS = """
kafka: {bootstrap: "k:9092"}
sources: {a: {type: mysql, host: a, user: u, password: p, tables: ["b.*"]}}
"""
NO_TOKEN = "slots on a cluster prove themselves by a token, and 'executor_token_file' is missing"
ENCRYPTED = "options: {spark.authenticate: true, spark.network.crypto.enabled: true}"
CLUSTER = f"master: spark://m:7077, driver: {{host: agent-1}}, executor_token_file: token, {ENCRYPTED}"


def load(folder: Path, spark: str) -> Config:
    (folder / "rowlock.yaml").write_text(f"{SERVERS}spark: {{{spark}}}\n")
    return load_config(folder / "rowlock.yaml", env={})


def list_problems(folder: Path, spark: str) -> list[str]:
    with pytest.raises(ConfigErrors) as refused:
        load(folder, spark)
    return [f"{each.place}: {each.seen}" for each in refused.value.problems]


def test_a_cluster_needs_an_address_a_token_and_encryption(tmp_path: Path) -> None:
    assert list_problems(tmp_path, "master: spark://m:7077") == [
        "spark.driver.host: executors of spark://m:7077 have to reach this agent, and 'host' is missing",
        f"spark.executor_token_file: {NO_TOKEN}",
        "spark.master: the connections of this cluster's Spark are not authenticated and encrypted",
    ]
    spark = load(tmp_path, CLUSTER).spark
    assert (spark.is_cluster, spark.executor_token_file) == (True, tmp_path / "token")


@pytest.mark.parametrize(
    "options",
    [
        "{}", "{spark.authenticate: true}", "{spark.network.crypto.enabled: true}",
        "{spark.authenticate: false, spark.network.crypto.enabled: true}",
        "{spark.authenticate: true, spark.ssl.ui.enabled: true}",
    ],
)  # fmt: skip
def test_each_half_of_encryption_alone_is_refused(tmp_path: Path, options: str) -> None:
    (problem,) = list_problems(tmp_path, CLUSTER.replace(ENCRYPTED, f"options: {options}"))
    assert problem.endswith("not authenticated and encrypted")


@pytest.mark.parametrize(
    "more", ["insecure: true", "options: {spark.authenticate: true, spark.ssl.rpc.enabled: true}", ENCRYPTED]
)
def test_a_cluster_is_used_with_encryption_or_with_insecure(tmp_path: Path, more: str) -> None:
    load(tmp_path, CLUSTER.replace(ENCRYPTED, more))


@pytest.mark.parametrize("host", ["0.0.0.0", "'::'"])
def test_executors_cannot_connect_to_all_addresses(tmp_path: Path, host: str) -> None:
    (problem,) = list_problems(tmp_path, CLUSTER.replace("agent-1", host))
    assert problem.startswith("spark.driver.host: executors cannot connect to")


@pytest.mark.parametrize("master", ["yarn", "k8s://https://api:6443", "spark://a:1,b:1"])
def test_masters(tmp_path: Path, master: str) -> None:
    assert load(tmp_path, CLUSTER.replace("spark://m:7077", f"'{master}'")).spark.is_cluster


@pytest.mark.parametrize("master", ["mesos://m", "spark:/m", "yarn-cluster", "m:7077"])
def test_other_masters_are_refused(tmp_path: Path, master: str) -> None:
    (problem, *_) = list_problems(tmp_path, CLUSTER.replace("spark://m:7077", f"'{master}'"))
    assert problem == f"spark.master: '{master}' does not fit"


@pytest.mark.parametrize(
    ("option", "seen"),
    [
        ("spark.executor.memroy", "is not one of Spark's settings that can be given here"),
        ("spark.dynamicAllocation.enabled", "is not one of Spark's settings that can be given here"),
        ("spark.task.maxFailures", "is not one of Spark's settings that can be given here"),
        ("spark.driver.extraJavaOptions", "is not one of Spark's settings that can be given here"),
        ("spark.authenticate.secret", "cannot be set here"),
        ("spark.ssl.keyPassword", "cannot be set here"),
        ("spark.kubernetes.authenticate.submission.oauthToken", "cannot be set here"),
        ("spark.executorEnv.PYTHONPATH", "cannot be set here"),
    ],
)
def test_only_permitted_options_are_taken(tmp_path: Path, option: str, seen: str) -> None:
    (problem,) = list_problems(tmp_path, f"options: {{{option}: x}}")
    assert problem == f"spark.options.{option}: {option} {seen}"


def test_settings_of_a_cluster(tmp_path: Path) -> None:
    more = "slots: 6, python: python3.11, package: rowlock-spark.tar.gz, "
    driver = "driver: {host: agent-1, port: 7078, block_manager_port: 7079, channel_port: 7080}"
    options = "spark.executor.cores: 2, spark.eventLog.enabled: true, spark.network.timeout: 60s"
    text = more + CLUSTER.replace("driver: {host: agent-1}", driver).replace(
        "options: {", f"options: {{{options}, "
    )
    spark = load(tmp_path, text).spark
    settings = build_cluster_settings(spark)
    expected = {
        "spark.driver.host": "agent-1",
        "spark.driver.port": "7078",
        "spark.driver.blockManager.port": "7079",
        "spark.cores.max": "6",
        "spark.executor.cores": "2",
        "spark.eventLog.enabled": "true",
        "spark.network.timeout": "60s",
        "spark.archives": f"{(tmp_path / 'rowlock-spark.tar.gz').as_uri()}#rowlock",
        "spark.executorEnv.PYTHONPATH": "rowlock",
    }
    assert {name: settings[name] for name in expected} == expected
    environment = build_cluster_environment(spark)
    assert environment == {"PYSPARK_PYTHON": "python3.11", "SPARK_LOCAL_IP": "agent-1"}


def test_an_executor_of_the_agents_version_is_used() -> None:
    versions = collect_versions()
    assert explain_difference("h", versions, dict(versions)) is None
    assert set(versions) == set(VERSION_REMEDIES)
    assert all(versions.values())


@pytest.mark.parametrize("other", ["Python", "Spark", "rowlock"])
def test_each_difference_is_named_with_the_host(other: str) -> None:
    versions = collect_versions()
    difference = explain_difference("host-b", versions, versions | {other: "9"})
    seen = f"the executor on host-b has {other} 9 (the agent has {versions[other]})"
    assert difference == f"{seen}: {VERSION_REMEDIES[other]}"


def test_an_executor_that_does_not_know_a_version_has_none() -> None:
    versions = collect_versions()
    difference = explain_difference("h", versions, {})
    assert difference is not None
    assert difference.startswith(
        f"the executor on h has Python none (the agent has {versions['Python']}), Spark none"
    )


def test_the_host_of_a_failed_task() -> None:
    lost = "Lost task 0.0 in stage 0.0 (TID 3) (10.77.0.3 executor 1): x.PythonException: y"
    trace = [
        f"org.apache.spark.SparkException: Task 0 failed 1 times, most recent failure: {lost}",
        "at z",
    ]
    assert find_host(trace) == "10.77.0.3"
    assert find_host(["something else"]) == ""
