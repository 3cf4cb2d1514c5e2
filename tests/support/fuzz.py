"""How many examples a property gets: few in `make test`, many with `--hypothesis-profile=ci`, which `.ci/run` takes.

    @histories()
    @given(st.lists(events))
    def test_no_card_is_overcommitted(...): ...

A test that takes long and whose point others make too, more closely or on a smaller scale, is `pytest.mark.long`: only
the profile `ci` runs it.

Both profiles wait as long as it takes: a busy machine is no reason to fail.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUICK, CI = "quick", "ci"


def register() -> None:
    """Make the profiles known, and take the quick one until an option says otherwise."""
    for name, examples in ((QUICK, 25), (CI, 100)):
        settings.register_profile(
            name, deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.too_slow]
        )
    settings.load_profile(QUICK)


def long() -> bool:
    """Whether what takes long is wanted."""
    return settings.get_current_profile_name() == CI


def examples(quick: int, ci: int) -> settings:
    """The settings of a property that needs more or fewer examples than others."""
    return settings(max_examples=ci if long() else quick)


def histories(quick: int = 40, ci: int = 2_000) -> settings:
    """The settings of a property over long stories of events, for which a hundred examples say little."""
    return examples(quick, ci)
