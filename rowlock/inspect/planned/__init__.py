"""`rowlock check --plan`: what a configuration would change in stored state, before it is done."""
