"""Partitioners choose the partitions that other clients' partitioners choose."""

from __future__ import annotations

from zlib import crc32 as checksum

import pytest

from consumer.targets.kafka.formats.partition import (
    PARTITIONERS,
    choose_crc32_partition,
    choose_murmur2_partition,
    compute_murmur2_hash,
)


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, signed: int) -> None:
    """The numbers are those that Kafka's own tests name."""
    assert compute_murmur2_hash(key) == signed % 2**32
    assert [choose_murmur2_partition(key, n) for n in (1, 3, 6, 1000)] == [
        (signed & 0x7FFFFFFF) % n for n in (1, 3, 6, 1000)
    ]


def test_murmur2_of_no_bytes_and_of_each_tail() -> None:
    assert compute_murmur2_hash(b"") == 275646681
    for n in range(8):
        assert len({compute_murmur2_hash(b"x" * n + end) for end in (b"a", b"b", b"\xff")}) == 3


def test_crc32_is_librdkafkas_consistent() -> None:
    assert checksum(b"123456789") == 0xCBF43926
    assert [choose_crc32_partition(b"123456789", n) for n in (1, 7, 100)] == [
        0xCBF43926 % n for n in (1, 7, 100)
    ]
    assert choose_crc32_partition(b"", 5) == 0


def test_the_words_of_the_configuration() -> None:
    assert {"murmur2": choose_murmur2_partition, "crc32": choose_crc32_partition} == PARTITIONERS


@pytest.mark.parametrize("word", sorted(PARTITIONERS))
def test_every_partition_gets_keys(word: str) -> None:
    assert {PARTITIONERS[word](f'{{"id":{n}}}'.encode(), 6) for n in range(100)} == set(range(6))
