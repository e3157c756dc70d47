"""`rowlock check --plan`: what a configuration would change of what is stored, before anything is done."""
