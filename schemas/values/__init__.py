"""The conversions between wire values and the values of each database's driver: a function for each
table, compiled from one for each column.
"""
