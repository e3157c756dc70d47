"""Wire values ↔ what the drivers of each database give and take: one function a table, made of one a column."""
