"""Storms: what one machine must stand.  `make test-long` runs them one after the other, with the machine to themselves."""
