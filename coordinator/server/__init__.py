"""The coordinator process: election, owner core, batch system and heartbeat transport joined; `operators.api` is what REST uses."""
