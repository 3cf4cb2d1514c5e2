"""The scheduler core: stories, and what holds under fire."""
