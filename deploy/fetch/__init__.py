"""The software of the embedded services: fetched once with Ivy, kept in a cache, and verified by
checksums.
"""
