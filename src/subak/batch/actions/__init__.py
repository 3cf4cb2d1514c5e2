"""What sessions do; one file an action."""
