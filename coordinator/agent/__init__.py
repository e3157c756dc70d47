"""The agent's process: the shell around `coordinator.core.agent`."""
