"""Row events that lack their last bytes: no way through the decoder takes the shorter value for the row's."""

from __future__ import annotations

import pytest

from producer.decoders.row_codec import TableCodec, TopicTail, UndecodableRow, count_rows
from tests.decoder_support import SOURCE, transaction
from tests.row_images import DELETE, UPDATE, WRITE, Made, sized, varchar

MADE = Made([varchar(20, "utf8mb4", 4)])
IMAGE = MADE.image(1, [sized(b"abc", 1)])


@pytest.mark.parametrize("missing", [1, 2, 3])
@pytest.mark.parametrize(("kind", "images"), [(WRITE, 1), (WRITE, 2), (DELETE, 1), (UPDATE, 2)])
def test_a_value_that_reaches_beyond_the_event_is_no_value(kind: int, images: int, missing: int) -> None:
    body, tx, tail = MADE.body(kind, [IMAGE] * images), transaction(), TopicTail()
    codec = TableCodec(MADE.table, MADE.map(), SOURCE, tail)
    cut = body[:-missing]
    for way in (codec.rows, codec.keys):
        with pytest.raises(UndecodableRow):
            way(kind, cut)
    with pytest.raises(UndecodableRow):
        count_rows(MADE.map(), kind, cut)
    before = tail.last, tx.total_order
    with pytest.raises(UndecodableRow):
        codec.encode(kind, cut, tx, 0)
    assert (tail.last, tx.total_order) == before
    assert len(codec.encode(kind, body, tx, 0)) == (images if kind != UPDATE else 1)
