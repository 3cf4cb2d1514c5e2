"""What runs on a node: reading what the containers there use of their cards."""
