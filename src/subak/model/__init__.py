"""The nouns: frozen values without I/O that every other room of the house speaks in."""
