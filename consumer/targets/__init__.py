"""Target databases: the code that all of them share, and a folder for each."""
