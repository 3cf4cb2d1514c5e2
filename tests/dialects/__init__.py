"""Tests of the request languages."""
