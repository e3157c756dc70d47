"""Commands that read and judge: check, status, verify, quarantine, and whether a run has caught up."""
