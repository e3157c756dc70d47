"""Commands that read and judge: check, status, verify, quarantine, and the end of `run --until-caught-up`."""
