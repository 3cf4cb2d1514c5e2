"""Amounts of what tasks ask for and clusters have, in the names that all dialects share: see `batch.amounts`."""
