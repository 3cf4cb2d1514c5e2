"""The cluster's cards in columns: pools, the ledger of who holds what, and scores remembered per shape of request."""
