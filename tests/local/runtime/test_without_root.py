"""All the tests of this folder once more, as a user without any rights."""

from __future__ import annotations

import os
import time

import pytest

from tests.local.runtime.conftest import OnceMore
from tests.nobody import possible

PATIENCE = 240.0


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")
def test_all_this_works_without_root(able: None, once_more: OnceMore | None) -> None:
    if not possible():
        pytest.skip("util-linux's setpriv and unshare are not installed")
    assert once_more is not None
    until = time.monotonic() + PATIENCE
    while not once_more.code.exists():
        assert time.monotonic() < until
        assert once_more.program.lives, once_more.output.read_text()
        time.sleep(0.02)
    print(output := once_more.output.read_text())
    assert once_more.code.read_text() == "0\n", output
    assert " passed" in output
