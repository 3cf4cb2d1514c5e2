"""Settings for all tests."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no reason to fail.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
