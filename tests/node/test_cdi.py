"""Descriptions of cards on the host: which names they give, and what is no description."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from subak.node.cdi import Catalogue


def describe(path: Path, *names: str, kind: str = "nvidia.com/gpu") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": [{"name": each} for each in names]}))


def test_cards_are_named_by_uuid_if_all_are_described(tmp_path: Path) -> None:
    describe(tmp_path / "nvidia.json", "0", "GPU-a", "GPU-b", "all")
    catalogue = Catalogue([tmp_path, tmp_path / "none"])
    assert catalogue.names(["GPU-b", "GPU-a"]) == ("nvidia.com/gpu=GPU-b", "nvidia.com/gpu=GPU-a")
    assert catalogue.names(["GPU-a", "GPU-a"]) == ("nvidia.com/gpu=GPU-a",)
    assert catalogue.names(["GPU-a", "GPU-c"]) == ()
    assert catalogue.names([]) == ()


def test_a_changed_description_is_read_again(tmp_path: Path) -> None:
    catalogue = Catalogue([tmp_path])
    assert catalogue.names(["GPU-a"]) == ()
    describe(tmp_path / "nvidia.yaml", "GPU-a")
    assert catalogue.names(["GPU-a"]) == ("nvidia.com/gpu=GPU-a",)
    (tmp_path / "nvidia.yaml").unlink()
    assert catalogue.names(["GPU-a"]) == ()


def test_in_two_folders_the_later_one_counts(tmp_path: Path) -> None:
    describe(tmp_path / "etc" / "a.json", "GPU-a")
    describe(tmp_path / "run" / "a.json", "GPU-a", kind="other.com/gpu")
    assert Catalogue([tmp_path / "etc", tmp_path / "run"]).names(["GPU-a"]) == ("other.com/gpu=GPU-a",)


@pytest.mark.parametrize("content", ["", "[]", "{", "kind: x", "kind: x\ndevices: [1]", "a: &a [*a]", "\x00"])
def test_what_is_no_description_is_passed_over(tmp_path: Path, content: str) -> None:
    (tmp_path / "broken.yaml").write_text(content)
    describe(tmp_path / "nvidia.json", "GPU-a")
    assert Catalogue([tmp_path]).names(["GPU-a"]) == ("nvidia.com/gpu=GPU-a",)
