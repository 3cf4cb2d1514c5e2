"""The nouns: frozen values without I/O that all other rooms use."""
