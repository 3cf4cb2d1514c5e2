"""Tests of the values that everything else rests on."""
