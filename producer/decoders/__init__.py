"""Binlog row images: TABLE_MAP parsing, column formats, and the source text of decoders generated from them."""
