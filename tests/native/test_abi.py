"""Our headers against facts taken from the vendor's own; `native/tests/abi.py` says how."""

from __future__ import annotations

import runpy

import pytest

from tests.support.native import ABLE, NATIVE

NOT_IN_HEADERS = {"function cuGetProcAddress_v2_ptsz"}  # exported by drivers, and asked for by CUDA's runtime

pytestmark = pytest.mark.skipif(not ABLE, reason="gcc reads the headers")


def _by_name(facts: set[str]) -> dict[str, str]:
    return {" ".join(fact.split()[:2]): fact for fact in facts}


def test_our_headers_say_what_the_vendors_say() -> None:
    ours = _by_name(runpy.run_path(str(NATIVE / "tests" / "abi.py"))["ours"]())
    theirs = _by_name(set((NATIVE / "tests" / "data" / "abi.txt").read_text().splitlines()))
    assert {name: fact for name, fact in ours.items() if theirs.get(name, fact) != fact} == {}
    assert ours.keys() - theirs.keys() == NOT_IN_HEADERS
    assert theirs.keys() - ours.keys() == set()
    kinds = {kind: sum(name.startswith(kind) for name in ours) for kind in ("function", "field", "size", "value")}
    assert all(count > 20 for count in kinds.values()), kinds
