"""The binary form of binlog events: headers of row events, TABLE_MAP and its metadata, character sets,
compression.
"""
