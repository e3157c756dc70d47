"""Pages that are generated from the code. Tests hold the pages against them."""
