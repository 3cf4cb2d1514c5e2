"""What is kept of what clients send."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from tinykube.server import selectors
from tinykube.server.kinds import CONFIG_MAP
from tinykube.server.memo import remembered
from tinykube.server.patch import fieldset
from tinykube.server.rules import images, scalars
from tinykube.server.rules.validation import names, resources

MEGABYTE = 1 << 20


def test_short_questions_are_answered_once_and_long_ones_each_time() -> None:
    asked: list[str] = []

    @remembered(8, 4)
    def loud(text: str, times: tuple[str, ...] = ()) -> str:
        asked.append(text)
        return text.upper()

    assert [loud("abcd"), loud("abcd"), loud("abcde"), loud("abcde")] == ["ABCD", "ABCD", "ABCDE", "ABCDE"]
    assert loud("ab", ("c", "de")) == loud("ab", times=("c", "de")) == "AB"
    assert asked == ["abcd", "abcde", "abcde", "ab", "ab"]


def test_the_latest_of_the_long_ones_may_be_kept() -> None:
    asked: list[str] = []

    @remembered(8, 4, long=1)
    def loud(text: str) -> str:
        asked.append(text)
        return text.upper()

    for text in ("long one", "long one", "another", "long one"):
        loud(text)
    assert asked == ["long one", "another", "long one"]


@pytest.mark.long
@pytest.mark.parametrize(
    "ask",
    [
        lambda text: selectors.test(CONFIG_MAP, f"a in ({'b,' * 1000}{text[:50]})", f"metadata.name={text}"),
        names.label_value,
        names.dns_label,
        names.config_key,
        resources.container_name,
        images.pull_policy,
        scalars.data,
        fieldset.value_step,
        lambda text: fieldset.key_step((("name", text),)),
        lambda text: fieldset.rank(f"f:{text}"),
    ],
)
def test_texts_of_a_megabyte_are_not_kept(ask: Callable[[str], object]) -> None:
    """Forty of them were, and more."""
    tracemalloc.start()
    try:
        for turn in range(40):
            ask(f"{turn:04}" + "a" * MEGABYTE)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 10 * MEGABYTE
