"""From topics to target tables: the topics and tables of a pipeline, active definitions, and the
decoding of events.
"""
