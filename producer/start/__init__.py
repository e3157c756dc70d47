"""The start of capture: the stored position, the proof that the log is the same one, and the tables'
state in the topics.
"""
