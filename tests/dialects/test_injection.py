"""What one container gets, put together from what its dialects give it."""

from __future__ import annotations

import pytest

from subak.dialects import Injection, preloading
from subak.model.mount import Mount
from subak.model.placement import Share


@pytest.mark.parametrize(
    ("own", "preloaded"),
    [
        ({}, "/library.so"),
        ({"LD_PRELOAD": ""}, "/library.so"),
        ({"LD_PRELOAD": "/from/a/config/map.so"}, "/library.so:/from/a/config/map.so"),
    ],
)
def test_what_a_container_preloads_stays_behind_the_library_of_its_share(own: dict[str, str], preloaded: str) -> None:
    found = Injection({"A": "1"}, preload="/library.so").variables(own)
    assert found == {"A": "1", "LD_PRELOAD": preloaded}


def test_a_container_without_such_a_library_keeps_what_it_preloads() -> None:
    assert Injection({"A": "1"}).variables({"LD_PRELOAD": "/own.so"}) == {"A": "1"}


def test_libraries_are_preloaded_in_their_order() -> None:
    assert preloading("/b.so", None, "", "/a.so") == {"LD_PRELOAD": "/b.so:/a.so"}


def test_nothing_is_lost_when_a_container_gets_two_injections() -> None:
    first, second = Share("GPU-0", 0, 1, 1), Share("GPU-1", 1, 1, 1)
    injection = Injection({"A": "1"}, [Mount("/a")], ["/dev/a", "/dev/both"], held=(first,))
    injection.add(Injection({"B": "2"}, [Mount("/b")], ["/dev/both", "/dev/b"], "/library.so", (second,)))
    assert injection == Injection(
        {"A": "1", "B": "2"},
        [Mount("/a"), Mount("/b")],
        ["/dev/a", "/dev/both", "/dev/b"],
        "/library.so",
        (first, second),
    )
