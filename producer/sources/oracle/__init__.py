"""Oracle's materialized view logs, as data: what their rows mean, which SQL reads and deletes them, what the catalogue says. Pure."""
