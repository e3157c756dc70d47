"""A running system of an earlier version that the present one continues: `make test-upgrade`."""
