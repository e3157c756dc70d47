"""Readers of topics for `verify`: they decode records like external readers, independently of the code
that wrote them.
"""
