from __future__ import annotations

import pytest

from tinykube.server.patch import order
from tinykube.server.patch.order import Items
from tinykube.status import ApiError


def items(names: str) -> Items:
    return [{"n": name} for name in names]


def names(found: Items) -> str:
    return "".join(each["n"] for each in found)


@pytest.mark.parametrize(
    ("merged", "wanted", "live", "expected"),
    [
        ("abc", "ca", "abc", "bca"),
        ("abc", "", "abc", "abc"),
        ("abcx", "x", "abc", "xabc"),
        ("abcx", "bx", "abc", "abxc"),
        ("ab", "ba", "", "ba"),
        # What has no place anywhere goes to the front.
        ("abx", "", "ab", "xab"),
    ],
)
def test_named_items_come_as_wanted_and_others_among_them(merged: str, wanted: str, live: str, expected: str) -> None:
    assert names(order.ordered(items(merged), items(wanted), items(live), order.by("n"))) == expected


@pytest.mark.parametrize(
    ("live", "deleted", "patch", "remembered"),
    [
        ("abc", "", "x", "abc"),
        ("abc", "b", "x", "acx"),
        ("abc", "ab", "xyz", "cxy"),
        ("abc", "b", "c", "acc"),
        ("abcb", "b", "xy", "acxy"),
        ("abc", "z", "x", "abc"),
    ],
)
def test_new_items_are_remembered_where_deleted_ones_were(live: str, deleted: str, patch: str, remembered: str) -> None:
    changes = [*items(patch), *({"n": name, "$patch": "delete"} for name in deleted)]
    assert names(order.remembered(items(live), changes, "n")) == remembered


def test_a_list_that_is_replaced_is_remembered_as_it_was() -> None:
    assert names(order.remembered(items("abc"), [*items("x"), {"$patch": "replace"}], "n")) == "abc"


def test_an_order_has_all_items_of_the_patch_in_their_order() -> None:
    order.check(items("ac"), items("abcd"), order.by("n"))
    order.check([{"n": "z", "$patch": "delete"}, *items("a")], items("a"), order.by("n"))
    order.check(items("a"), [], order.by("n"))
    for wrong in ("ca", "az"):
        with pytest.raises(ApiError):
            order.check(items(wrong), items("abcd"), order.by("n"))


def test_items_of_an_order_say_which_they_are() -> None:
    for wrong, problem in (({}, "does not contain declared merge key: n"), ("x", "received a string")):
        with pytest.raises(ApiError, match=problem):
            order.check(items("a"), [wrong], order.by("n"))
