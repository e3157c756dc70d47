"""The source with a binlog, and what MySQL and MariaDB do each in its own way: all else is the same for both."""
