"""Snapshots of tables: chunks within watermark windows, beside the log."""
