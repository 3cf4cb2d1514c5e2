"""What actions ask; one file a plugin."""
