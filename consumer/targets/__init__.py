"""Target databases: what is the same for all of them; a folder for each."""
