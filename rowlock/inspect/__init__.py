"""Commands that look and judge: check, status, verify, quarantine, caught up or not."""
