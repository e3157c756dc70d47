"""Settings and ids of topics in Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from rowlock.views.kafka import KAFKA_VIEW_TIMEOUT_S, translate_kafka_errors
from rowlock.views.retention import RetentionLimits
from schemas.config.model import KafkaConfig
from schemas.io.kafka_clients import ClientLog, build_client_settings, open_admin
from schemas.patience import scale_timeout

_NOT_FOR_US = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,  # deleted since it was listed
    }
)  # fmt: skip


class TopicSettings:
    """Reads the settings and ids of topics. Raises KafkaUnreachableError.

    Its client is opened when it is first needed, and used by one thread at a time.
    """

    def __init__(self, kafka: KafkaConfig) -> None:
        self._kafka = kafka
        self._admin: AdminClient | None = None

    def read_retention(self, topics: Iterable[str]) -> dict[str, RetentionLimits]:
        """Return how long Kafka keeps the events of each topic, without topics with settings that the
        user may not read.
        """
        return {topic: parse_topic_retention(found) for topic, found in self._read_settings(topics).items()}

    def read_cleanup_policies(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the clean-up policy of each topic, without topics with settings that the user may not
        read.
        """
        return {topic: found["cleanup.policy"] for topic, found in self._read_settings(topics).items()}

    def read_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the id of each topic, without those that the user may not see. A topic that is deleted and
        created again has another one.
        """
        asked, found = list(topics), dict[str, str]()
        with translate_kafka_errors(self._kafka.bootstrap):
            answers = (
                self._open_admin().describe_topics(
                    TopicCollection(asked), request_timeout=scale_timeout(KAFKA_VIEW_TIMEOUT_S)
                )
                if asked
                else {}
            )
            for topic, answer in answers.items():
                try:
                    found[topic] = str(answer.result().topic_id)
                except KafkaException as error:
                    if error.args[0].code() not in _NOT_FOR_US:
                        raise
        return found

    def _open_admin(self) -> AdminClient:
        if self._admin is None:
            settings = build_client_settings(self._kafka.bootstrap, self._kafka.options, {})
            self._admin = open_admin(settings, log=ClientLog.SILENT)
        return self._admin

    def _read_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        admin = self._open_admin()
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found: dict[str, dict[str, str]] = {}
        with translate_kafka_errors(self._kafka.bootstrap):
            answers = (
                admin.describe_configs(asked, request_timeout=scale_timeout(KAFKA_VIEW_TIMEOUT_S))
                if asked
                else {}
            )
            for topic, answer in answers.items():
                try:
                    read = answer.result()
                except KafkaException as error:
                    if error.args[0].code() not in _NOT_FOR_US:
                        raise
                else:
                    found[topic.name] = {name: str(entry.value) for name, entry in read.items()}
        return found


def parse_topic_retention(settings: Mapping[str, str]) -> RetentionLimits:
    """Return the retention by a topic's settings; -1 means for ever, or any size. Pure."""
    age, size = int(settings.get("retention.ms", -1)), int(settings.get("retention.bytes", -1))
    return RetentionLimits(
        None if age < 0 else age / 1000, "retention.ms", None if size < 0 else size, "retention.bytes"
    )
