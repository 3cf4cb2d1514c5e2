"""One script per published number; each prints a table."""
