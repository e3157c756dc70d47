"""The apply process: it reads instructions from stdin, and runs one Spark session, a thread for each
pipeline, and the threads of blocking operations.
"""
