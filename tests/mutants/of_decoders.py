"""Mutants of the decoders: where a form of the log ends."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TESTS = ("tests/unit/test_decoder_bounds.py",)


def _of(file: str, *changes: tuple[str, str]) -> list[Mutant]:
    return [Mutant(f"producer/{file}", old, new, _TESTS) for old, new in changes]


MUTANTS = [
    *_of(
        "decoders/columns.py",
        ("2 if logged.metadata > 255 else 1", "2 if logged.metadata > 256 else 1"),
        ("2 if logged.metadata > 255 else 1", "2 if logged.metadata >= 255 else 1"),
        ('" | {1} << 16" if logged.metadata == 3', '" | {1} << 8" if logged.metadata == 3'),
        ('" | {1} << 16" if logged.metadata == 3', '" | {1} << 16" if logged.metadata == 4'),
        ('2: (("<", "H"),), 3: (("<", "H"), ("", "B"))', '2: (("<", "H"),), 3: (("", "B"), ("<", "H"))'),
        ("big_endian((column.length + 7) // 8)", "big_endian(min(column.length // 8 + 1, 8))"),
        ("if column.length <= 53:", "if column.length <= 54:"),
        ('("", "B") if logged.metadata == 1 else', '("", "B") if logged.metadata <= 2 else'),
        ('for label in ("", *_get_labels(column))', 'for label in (*_get_labels(column), "")'),
        ("\".rstrip(' ')\" if column.kind is Kind.CHAR", "\".rstrip(' ')\" if column.kind is not Kind.TEXT"),
        (" if column.kind is Kind.BINARY else", " if column.kind is Kind.BLOB else"),
        ('high = "B" if column.unsigned else "b"', 'high = "B"'),
        ("code = code.upper() if column.unsigned else code", "code = code.upper()"),
        ("-{limit} <= {n} <= {limit}", "-{limit} < {n} <= {limit}"),
        ("-{limit} <= {n} <= {limit}", "-{limit} <= {n} < {limit}"),
    ),
    *_of(
        "decoders/scalars.py",
        ("MAX_SAFE = 2**53", "MAX_SAFE = 2**53 - 1"),
        ("for i, m in enumerate(self._members) if mask >> i & 1", "for i, m in enumerate(self._members) if mask & i"),
        ("if mask >> len(self._members):", "if mask >> len(self._members) - 1:"),
    ),
    *_of(
        "decoders/fragments.py",
        ('(">" if code != "B" else "", code)', '("<" if code != "B" else "", code)'),
        ("zip(names[1:], codes[1:], strict=True)", "zip(names[1:], codes[:-1], strict=True)"),
    ),
    *_of(
        "binlog_format/table_map.py",
        ("low | ((high & 0x30) ^ 0x30) << 4", "low"),
        ("if high & 0x30 != 0x30:", "if high & 0x10 != 0x10:"),
        ("metadata.read_uint(1) + 8 * metadata.read_uint(1)", "metadata.read_uint(1) | metadata.read_uint(1) << 4"),
        ("reader.read_bytes((count + 7) // 8)", "reader.read_bytes(count // 8 + 1)"),
        ("nullable[i >> 3] >> (i & 7) & 1", "nullable[i >> 3] >> (7 - (i & 7)) & 1"),
        ("ByteReader(reader.read_bytes(reader.read_lenenc()))\n    forms", "ByteReader(reader.read_bytes(reader.read_uint(1)))\n    forms"),
    ),
    *_of(
        "binlog_format/byte_reader.py",
        ("if first < 251:", "if first <= 252:"),
        ("252: 2, 253: 3", "252: 1, 253: 3"),
    ),
    *_of(
        "binlog_format/row_header.py",
        ("if first < 251 else", "if first <= 252 else"),
        ("body[at + 1 : at + 3]", "body[at + 1 : at + 2]"),
        ("size = (columns + 7) // 8\n    full", "size = columns // 8 + 1\n    full"),
        ("for _ in range(2 if event_type in t.UPDATES else 1)", "for _ in range(1)"),
    ),
    *_of(
        "decoders/generate.py",
        ("return (len(self.formats) + 7) // 8", "return len(self.formats) // 8 + 1"),
        ("is_null = nulls >> i & 1", "is_null = nulls >> i & 1 and i < 255"),
        ('f"if nulls >> {i} & 1:"', 'f"if nulls >> {i} & 3:"'),
        ('f"p += {size}"]', 'f"p += 1"]'),
        ("if size == 1:\n        return f\"data[{p}] == {nulls}\"", "if size <= 2:\n        return f\"data[{p}] == {nulls}\""),
    ),
    *_of(
        "decoders/row_codec.py",
        ("return count // 2 if event_type in t.UPDATES else count", "return count"),
    ),
    *_of(
        "decoders/skip.py",
        ("2 if column.metadata > 255 else 1", "2 if column.metadata > 256 else 1"),
        ("2 if column.metadata > 255 else 1", "2 if column.metadata >= 255 else 1"),
        ("return (column.metadata + 7) // 8", "return column.metadata // 8 + 1"),
    ),
]  # fmt: skip
