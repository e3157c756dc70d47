"""Row events that lack their last bytes: no way through the decoder takes the shorter value for the row's."""

from __future__ import annotations

from functools import partial

import pytest

from producer.decoders import row_codec
from producer.decoders.generate import ImageFunctions
from producer.decoders.row_codec import TableCodec, TopicTail, UndecodableRow, count_rows
from tests.kits.decoder_support import SOURCE, decode_rows, transaction
from tests.kits.row_images import DELETE, UPDATE, WRITE, Made, sized, varchar

MADE = Made([varchar(20, "utf8mb4", 4)])
IMAGE = MADE.image(1, [sized(b"abc", 1)])


@pytest.mark.parametrize("missing", [1, 2, 3])
@pytest.mark.parametrize(("kind", "images"), [(WRITE, 1), (WRITE, 2), (DELETE, 1), (UPDATE, 2)])
def test_a_value_that_reaches_beyond_the_event_is_no_value(kind: int, images: int, missing: int) -> None:
    body, tx, tail = MADE.body(kind, [IMAGE] * images), transaction(), TopicTail()
    codec = TableCodec(MADE.table, MADE.map(), SOURCE, tail)
    cut = body[:-missing]
    for way in (partial(decode_rows, codec), codec.decode_keys):
        with pytest.raises(UndecodableRow):
            way(kind, cut)
    with pytest.raises(UndecodableRow):
        count_rows(MADE.map(), kind, cut)
    before = tail.last, tx.total_order
    with pytest.raises(UndecodableRow):
        codec.build_records(kind, cut, tx, 0)
    assert (tail.last, tx.total_order) == before
    assert len(codec.build_records(kind, body, tx, 0)) == (images if kind != UPDATE else 1)


def test_functions_that_count_rows_are_forgotten_when_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layout of a table is one more, and a capture sees those of every ALTER of every table."""
    kept: dict[bytes, ImageFunctions] = {}
    monkeypatch.setattr(row_codec, "_COUNTERS", kept)
    monkeypatch.setattr(row_codec, "_MAX_COUNTERS", 2)
    sizes = []
    for width in range(4, 9):
        made = Made([varchar(width, "utf8mb4", 4)])
        image = made.image(1, [sized(b"abc", 1)])
        assert count_rows(made.map(), WRITE, made.body(WRITE, [image, image])) == 2
        sizes.append(len(kept))
    assert sizes == [1, 2, 1, 2, 1]
