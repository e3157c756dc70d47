"""Row images as msgspec decodes them.

An image is a structure with a field for each column, which is fastest, or a mapping if a column's name
cannot be that of a structure's field (quotation marks, backslashes, control characters).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from schemas.table.model import Row


def has_plain_names(names: Sequence[str]) -> bool:
    """Return whether JSON contains all names unescaped: msgspec compares a structure's fields with the
    raw text.
    """
    return all(msgspec.json.encode(name) == f'"{name}"'.encode() for name in names)


def make_image_type(names: Sequence[str], kept: Collection[str], *, exact: bool = False) -> Any:
    """Return the type of an image of the columns `names`; those that are not `kept` are always None in
    a structure.

    `exact`: columns that are not among `names` are refused.
    """
    if not has_plain_names(names):
        return dict[str, Any]
    unused_name = " " * (1 + max(map(len, names)))  # longer than any column's name
    fields: list[Any] = [
        (f"c{i}", Any) if name in kept else (f"c{i}", Any, None) for i, name in enumerate(names)
    ]
    rename = {f"c{i}": name if name in kept else f"{unused_name}{i}" for i, name in enumerate(names)}
    return msgspec.defstruct(
        "Image", fields, rename=rename, kw_only=True, gc=False, forbid_unknown_fields=exact
    )


def make_image_reader(names: Sequence[str]) -> Callable[[Any], Row]:
    """Return the function from an image of `make_image_type` to its values in the order of `names`."""
    if has_plain_names(names):
        return msgspec.structs.astuple
    return lambda image: tuple([image[name] for name in names])


def make_checked_decoder(
    decode: Callable[[bytes], Any], names: Sequence[str], *, exact: bool = False
) -> Callable[[bytes], Any]:
    """Return `decode` with a check that refuses images without all columns (`exact`: or with others),
    like a structure.
    """
    if has_plain_names(names):
        return decode
    expected = set(names)

    def decode_checked(raw: bytes) -> Any:
        event = decode(raw)
        for image in (event.before, event.after):
            if image is not None and not (image.keys() == expected if exact else image.keys() >= expected):
                raise msgspec.ValidationError(f"the image has the columns {sorted(image)}")
        return event

    return decode_checked
