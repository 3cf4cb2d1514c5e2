"""Admission of pods before they are stored: fills in defaults and refuses impossible requests."""
