"""Files that are nearly right: an answer and a documented exit code, never a traceback, in bounded time and memory."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subak.dialects.interpreter import Interpreter
from subak.local.hardware import profiles
from subak.local.hardware.description import BadDescription
from tests.support.bombs import BOMB, MERGES
from tests.support.commands import subak, write
from tests.support.fuzz import examples
from tests.support.junk import nearly
from tests.support.live import ROOT

DOCUMENTED = {0, 1, 2}
MOST_BYTES = 100 << 20
CLUSTERS = sorted((ROOT / "examples" / "clusters").glob("*.yaml"))
LANGUAGES = Interpreter()
HARDWARE = {
    "nodes": [
        {"name": "n", "profile": "volcano", "count": 2, "labels": {"a": "b"}},
        *({"name": f"{name}-too", **profile} for name, profile in profiles.built_in().items()),
    ]
}


@cache
def objects(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


@settings(examples(quick=10, ci=200), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
@pytest.mark.parametrize("command", ["place", "explain"])
def test_manifests_that_are_nearly_right(command: str, tmp_path: Path, data: st.DataObject) -> None:
    cluster = data.draw(st.sampled_from(CLUSTERS))
    found = objects(cluster)
    changed = data.draw(st.integers(0, len(found) - 1))
    odd = [data.draw(nearly(each)) if number == changed else each for number, each in enumerate(found)]
    pod = data.draw(nearly(objects(ROOT / "examples" / "volcano" / "gpu-pod1.yaml")[0]))
    for name, content in (("cluster.yaml", odd), ("pod.yaml", [pod])):
        (tmp_path / name).write_text(yaml.safe_dump_all(content, allow_unicode=True))
    answer = subak(command, "-f", tmp_path / "pod.yaml", "--cluster", tmp_path / "cluster.yaml")
    assert answer.code in DOCUMENTED
    assert not answer.code or answer.err + answer.out


def test_these_files_would_be_right() -> None:
    assert len(profiles.machines(HARDWARE, "hardware.yaml", LANGUAGES)) > 2


@examples(quick=50, ci=1_000)
@given(nearly(HARDWARE))
def test_hardware_that_is_nearly_right(content: Any) -> None:
    with suppress(BadDescription):
        profiles.machines(content, "hardware.yaml", LANGUAGES)


@pytest.mark.parametrize("text", [BOMB, MERGES, "[" * 100_000, "a: &a [*a]", "{a: " + "9" * 100_000 + "}"])
def test_files_that_are_bombs_are_refused_within_bounds(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "bomb.yaml", text)
    cluster = ROOT / "examples" / "clusters" / "volcano.yaml"
    tracemalloc.start()
    try:
        assert subak("place", "-f", file, "--cluster", cluster).code == 2
        assert subak("place", "-f", "examples/volcano", "--cluster", file).code == 2
        with pytest.raises(BadDescription):
            profiles.read(file, LANGUAGES)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
