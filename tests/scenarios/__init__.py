"""Scenarios that involve several rooms."""
