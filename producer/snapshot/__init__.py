"""Snapshots of tables: chunks within watermark windows, alongside the log."""
