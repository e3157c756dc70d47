"""The coordinator process: election, owner core, batch system and heartbeat transport joined; `control` is what REST uses."""
