"""The apply process: instructions on stdin, one Spark session, a thread for each pipeline, blocking
operations.
"""
