"""How many examples a property gets: few in `make test`, many with `--hypothesis-profile=ci`, which `.ci/run` takes.

    @histories()
    @given(st.lists(events))
    def test_no_card_is_overcommitted(...): ...

A test that takes seconds, or repeats the point of a quicker one, has the mark `long`: only the profile `ci` runs it.

Neither profile has a deadline: a busy machine is no reason to fail.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUICK, CI = "quick", "ci"


def register() -> None:
    """Register the profiles, and load the quick one, which an option may replace."""
    for name, examples in ((QUICK, 10), (CI, 100)):
        settings.register_profile(
            name, deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.too_slow]
        )
    settings.load_profile(QUICK)


def long() -> bool:
    """Whether long tests are wanted."""
    return settings.get_current_profile_name() == CI


def examples(quick: int, ci: int) -> settings:
    """The settings of a property that needs more or fewer examples than others."""
    return settings(max_examples=ci if long() else quick)


def rare(quick: int, ci: int) -> settings:
    """The same for a property of a case that most examples do not come to (`assume`)."""
    return settings(examples(quick, ci), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


def histories(quick: int = 10, ci: int = 2_000) -> settings:
    """The settings of a property over long stories of events, for which a hundred examples say little."""
    return examples(quick, ci)
