"""Partitioners: choose the partition of a key in a topic as other producers of the topic do. Pure.

A consumer that joins two topics, or reads one partition of each, relies on a key being in one
partition, whichever producer wrote it. So both are exactly those of common clients: Java's default, and
librdkafka's `consistent`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from zlib import crc32 as checksum

Partitioner = Callable[[bytes, int], int]
"""(key, number of partitions) → partition."""

_SEED, _M, _WORD = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


def choose_murmur2_partition(key: bytes, partitions: int) -> int:
    """Return the partition that Java's default partitioner chooses for a key."""
    return (compute_murmur2_hash(key) & 0x7FFFFFFF) % partitions


def choose_crc32_partition(key: bytes, partitions: int) -> int:
    """Return the partition that librdkafka's `consistent` chooses for a key."""
    return checksum(key) % partitions


def compute_murmur2_hash(key: bytes) -> int:
    """Return the 32 bits of MurmurHash2 with the seed of Kafka's clients, as an unsigned number."""
    size = len(key)
    whole = size & ~3
    found = _SEED ^ size
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        mixed = word * _M & _WORD
        found = (found * _M & _WORD) ^ ((mixed ^ mixed >> 24) * _M & _WORD)
    if size > whole:
        found = (found ^ int.from_bytes(key[whole:], "little")) * _M & _WORD
    found = (found ^ found >> 13) * _M & _WORD
    return found ^ found >> 15


PARTITIONERS: dict[str, Partitioner] = {"murmur2": choose_murmur2_partition, "crc32": choose_crc32_partition}
"""The values of `partitioner:` in the configuration."""
