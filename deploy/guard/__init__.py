"""The guard that kills services with all their children once the process that started them has ended."""
