"""Parts of `rowlock check`: of coordination, of Debezium's topics, and of tables on their way that meet in one place."""
