"""What `check`, each start and each reconnect ask of a source."""
