"""Storms that one machine must stand.  `make test-long` runs them one after the other, when all else has ended."""
