"""Amounts as people say them."""

from __future__ import annotations

import pytest

from subak.batch.wording import called, figure, words

GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("nvidia/memory", 40 * GIB, "40 GiB of NVIDIA memory"),
        ("nvidia/memory", 2000 << 20, "2 GiB of NVIDIA memory"),
        ("metax/memory", 500 << 20, "500 MiB of MetaX memory"),
        ("mthreads/cores", 4, "4 Moore Threads cores"),
        ("nvidia/cards", 3, "3 whole NVIDIA cards"),
        ("iluvatar/cards", 1, "1 whole Iluvatar card"),
        ("amd/slots", 2, "2 amd slots"),
        ("cpu", 1500, "1.5 cpu"),
        ("memory", 1.5 * GIB, "1.5 GiB of memory"),
        ("pods", 1, "1 pod"),
        ("example.com/thing", 12_000, "12,000 example.com/thing"),
    ],
)
def test_an_amount_in_words(name: str, amount: float, text: str) -> None:
    assert words(name, amount) == text
    assert text.startswith(figure(name, amount))
    assert called(name).removesuffix("s") in text
