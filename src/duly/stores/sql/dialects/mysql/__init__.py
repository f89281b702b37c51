"""MariaDB, by the protocol of MySQL."""
