"""What MySQL and MariaDB do each in its own way. Everything else of a source with a binlog is the same for both."""
