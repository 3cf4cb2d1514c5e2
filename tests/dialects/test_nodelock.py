from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.nodelock import Contention, Lock, release, take

NOW = datetime(2026, 8, 21, 10, 0, 0, tzinfo=timezone(timedelta(hours=8)))


def held(minutes: float, *owner: str) -> str:
    """A lock that was taken so long ago."""
    return ",".join(((NOW - timedelta(minutes=minutes)).isoformat(timespec="seconds"), *owner))


def there(pod: str) -> bool:
    return True


def gone(pod: str) -> bool:
    return False


def test_a_free_lock_is_taken_with_time_and_pod() -> None:
    assert take(None, "default/gpu-pod1", NOW, gone) == "2026-08-21T10:00:00+08:00,default,gpu-pod1"


def test_a_living_pod_keeps_its_lock() -> None:
    with pytest.raises(Contention, match="default/pod-a holds the node lock since .*void in 240 s"):
        take(held(1, "default", "pod-a"), "default/pod-b", NOW, there)


def test_a_pod_may_take_its_own_lock_again() -> None:
    value = held(1, "default", "pod-a")
    assert take(value, "default/pod-a", NOW, gone) == value


def test_pods_of_the_same_name_in_other_namespaces_are_others() -> None:
    with pytest.raises(Contention):
        take(held(1, "default", "pod-a"), "other/pod-a", NOW, there)


def test_the_lock_of_a_pod_that_is_gone_is_stolen() -> None:
    asked: list[str] = []

    def exists(pod: str) -> bool:
        asked.append(pod)
        return False

    assert take(held(1, "default", "gone"), "default/pod-b", NOW, exists) == held(0, "default", "pod-b")
    assert asked == ["default/gone"]


@pytest.mark.parametrize("owner", [("default", "pod-a"), (), ("default", "pod-b")])
def test_after_five_minutes_any_lock_is_void(owner: tuple[str, ...]) -> None:
    assert take(held(6, *owner), "default/pod-b", NOW, there) == held(0, "default", "pod-b")


@pytest.mark.parametrize("minutes", [1, 5])
def test_a_young_lock_of_the_old_form_is_somebodys(minutes: int) -> None:
    with pytest.raises(Contention, match="an unnamed pod holds"):
        take(held(minutes), "default/pod-b", NOW, gone)


@pytest.mark.parametrize(
    "value",
    [
        "a,b",
        held(1, "a"),
        held(1, "a", "b", "c"),
        held(9, "a", ""),
        "",
        "yesterday",
        "2026-08-21T10:00:00,a,b",
        "x,a,b",
    ],
)
def test_a_malformed_lock_is_an_error_and_not_ours_to_take(value: str) -> None:
    with pytest.raises(ValueError, match="malformed node lock"):
        take(value, "default/pod-b", NOW, gone)
    with pytest.raises(ValueError, match="malformed node lock"):
        release(value, "default/pod-b")


def test_the_loser_of_a_race_sees_the_winners_lock() -> None:
    winner = take(None, "default/pod-a", NOW, there)
    take(None, "default/pod-b", NOW, there)  # written with a stale resourceVersion: the API server refuses it
    with pytest.raises(Contention, match="default/pod-a"):
        take(winner, "default/pod-b", NOW, there)


def test_go_writes_utc_as_z() -> None:
    assert Lock.parse("2026-08-21T02:00:00Z,default,pod-a") == Lock(NOW.astimezone(UTC), "default/pod-a")


@pytest.mark.parametrize(
    ("value", "removed"),
    [
        (held(1, "default", "pod-b"), True),
        (held(1, "default", "pod-a"), False),
        (held(1, "other", "pod-b"), False),
        (held(1), True),
        (None, False),
    ],
)
def test_only_the_owners_or_an_old_lock_is_removed(value: str | None, removed: bool) -> None:
    assert release(value, "default/pod-b") is removed


@given(
    minutes=st.floats(0, 4.9),
    owner=st.sampled_from(["default/a", "default/b"]),
    pod=st.sampled_from(["default/a", "default/b"]),
)
def test_one_pod_at_a_time_holds_the_node(minutes: float, owner: str, pod: str) -> None:
    value = take(None, owner, NOW - timedelta(minutes=minutes), there)
    if owner == pod:
        assert take(value, pod, NOW, there) == value
        assert release(value, pod)
    else:
        with pytest.raises(Contention):
            take(value, pod, NOW, there)
        assert not release(value, pod)
