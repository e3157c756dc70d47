"""Messages for errors of database servers: refused versions, and failed reads of a catalog."""
