"""What kube-scheduler is told of the extender."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from subak.scheduler.extender.configuration import configuration, manageable
from tests.support.commands import subak, write

SAMPLE = Path(__file__).parents[3] / "deploy" / "extender" / "scheduler.yaml"


def printed(*arguments: str | Path) -> dict[str, Any]:
    answer = subak("extender", *arguments)
    assert (answer.code, answer.err) == (0, "")
    content: dict[str, Any] = yaml.safe_load(answer.out)
    return content


def managed(content: dict[str, Any]) -> set[str]:
    (extender,) = content["extenders"]
    assert all(each["ignoredByScheduler"] for each in extender["managedResources"])
    return {each["name"] for each in extender["managedResources"]}


def test_the_sample_is_what_the_command_prints() -> None:
    assert yaml.safe_load(SAMPLE.read_text()) == printed()


def test_every_system_has_its_resources_and_its_profile() -> None:
    content = printed()
    assert [each["schedulerName"] for each in content["profiles"]] == ["hami-scheduler", "volcano", "koord-scheduler"]
    assert managed(content) >= {"nvidia.com/gpumem", "volcano.sh/gpu-memory", "koordinator.sh/gpu-core"}
    assert content["leaderElection"]["resourceName"] != "kube-scheduler"


def test_names_of_the_device_config_are_managed(tmp_path: Path) -> None:
    config = write(tmp_path / "device-config.yaml", "nvidia: {resourceCountName: example.com/gpu}")
    assert "example.com/gpu" in managed(printed("--device-config", config))


@pytest.mark.parametrize(
    ("resource", "expected"), [("nvidia.com/gpu", True), ("kubernetes.io/gpu", False), ("memory", False)]
)
def test_kube_scheduler_gives_up_no_names_of_its_own_domain(resource: str, expected: bool) -> None:
    assert manageable(resource) is expected


def test_an_extender_behind_https_is_trusted_by_its_authority() -> None:
    (extender,) = configuration([], "https://subak.subak-system:8118/")["extenders"]
    assert extender["urlPrefix"] == "https://subak.subak-system:8118"
    assert extender["enableHTTPS"]
    assert extender["tlsConfig"] == {"caFile": "/etc/subak/ca.crt"}
