"""Parts of `rowlock check`: coordination, Debezium's topics, and tables that meet in one target table or
topic.
"""
