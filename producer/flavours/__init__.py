"""Sources with a binlog, and the differences between MySQL and MariaDB; everything else is the same for
both.
"""
