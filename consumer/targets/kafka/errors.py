"""The translation of Kafka's errors to consumer.errors: retries, problems for a person, and the loss of
the right to write.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from consumer.errors import ConsumerError, TargetConfigError, TransientError, UnitStoppedError

FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE"})
"""A broker's answers to a producer after another producer's begin has ended its transaction; they
depend on where the broker detects that.
"""
TOO_LARGE = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})

_UNTRUSTED = "certificate verify failed"
_UNREACHED = frozenset({"_TRANSPORT", "_RESOLVE", "_ALL_BROKERS_DOWN", "_BAD_MSG"})
"""No broker answers at `bootstrap`, or another server does."""
_NOT_CONNECTED = "start the brokers, or correct the target's `bootstrap` and `options`"
_NO_TRANSACTIONS = (
    "the broker has no transactions, without which records and progress could not be written "
    "together: use Kafka 0.11 or newer"
)
_REMEDIES = {
    "_UNSUPPORTED_FEATURE": _NO_TRANSACTIONS,
    "UNSUPPORTED_VERSION": _NO_TRANSACTIONS,
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": _NO_TRANSACTIONS,
    "_AUTHENTICATION": "the broker does not accept the user: correct the target's `options` "
    "(sasl.username, sasl.password)",
    "_SSL": "TLS with the broker fails: correct the target's `options` (ssl.ca.location: the authority of "
    "the broker's certificate; security.protocol)",
    "SASL_AUTHENTICATION_FAILED": "the broker does not accept the user: correct the target's `options` "
    "(sasl.username, sasl.password)",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "the user may not write transactions: allow Write and Describe "
    "on the transactional ids that begin with the target's `prefix`",
    "TOPIC_AUTHORIZATION_FAILED": "the user may not use the topic: allow Read, Write, DescribeConfigs and, "
    "where rowlock makes it, Create on it",
    "CLUSTER_AUTHORIZATION_FAILED": "the user lacks a right on the cluster: grant "
    "it, or create the topics yourself",
    "INVALID_TRANSACTION_TIMEOUT": (
        "the broker does not allow transactions of that length: raise its "
        "transaction.max.timeout.ms to that value, or shorten `coordination.lease_s`"
    ),
    "INVALID_REPLICATION_FACTOR": "the cluster has too few brokers: set the target's "
    "`replication` to at most their number",
    "POLICY_VIOLATION": "a policy of the cluster refuses it: make the topic yourself",
    "INVALID_TOPIC_EXCEPTION": "this is not a valid topic name: correct `to` of the route",
}


class WriterFencedError(TransientError):
    """Another producer took the transactional id; the progress topic shows which worker owns the unit.

    No record of an open transaction remains.
    """


def get_kafka_error(error: KafkaException) -> KafkaError | None:
    """Return the Kafka error in an exception of its client, if there is one."""
    seen = error.args[0] if error.args else None
    return seen if isinstance(seen, KafkaError) else None


def translate_kafka_error(error: KafkaException | KafkaError, doing: str) -> ConsumerError:
    """Return the error of a failed call; `doing`: what the call was for."""
    seen = error if isinstance(error, KafkaError) else get_kafka_error(error)
    if seen is None:
        return TransientError(f"{doing}: {error}")
    # The client reports an untrusted certificate as _SSL, or as a broken transport with OpenSSL's text.
    name = "_SSL" if _UNTRUSTED in seen.str() else seen.name()
    if name in FENCED:
        return WriterFencedError(f"{doing}: another producer has its transactional id now ({seen.str()})")
    if name in TOO_LARGE:
        return UnitStoppedError(
            f"{doing}: the broker refuses a record as too large ({seen.str()})",
            "raise max.message.bytes of the topic, or message.max.bytes of the broker",
        )
    if name in _REMEDIES:
        return TargetConfigError(f"{doing}: {seen.str()}", _REMEDIES[name])
    return TransientError(f"{doing}: {seen.str()} ({name})", _NOT_CONNECTED if name in _UNREACHED else "")
