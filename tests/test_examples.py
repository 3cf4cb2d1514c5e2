"""The examples: each document's pods get the annotations and the environment that the document prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from subak.batch import gangs
from subak.model import manifest
from subak.model.group import GROUPS
from tests.support.commands import Answer, subak, write

EXAMPLES = Path(__file__).parent.parent / "examples"
FOLDERS = ("volcano", "koordinator", "shared", "moore-threads", "iluvatar", "metax")
PODS = {
    "volcano": ("gpu-pod1", "gpu-pod2"),
    "koordinator": ("pod",),
    "moore-threads": ("pod",),
    "iluvatar": ("pod", "bi-v150"),
    "metax": ("sgpu/pod", "gpu/pod"),
    "shared": ("1-hami", "2-volcano", "3-koordinator"),
}
A10 = "GPU-4d2c9a71-6e0b-4b3f-9d18-a1b2c3d40001"


def place(folder: str, *pods: str, cluster: str = "") -> Answer:
    """Place pods of a folder on its own cluster, or on another one."""
    files = [argument for name in pods for argument in ("-f", EXAMPLES / folder / f"{name}.yaml")]
    return subak("place", *files, "--cluster", EXAMPLES / f"clusters/{cluster or folder}.yaml", "-o", "json")


def placed(answer: Answer) -> list[Any]:
    notes = [line for line in answer.err.splitlines() if not line.endswith(": PodGroup skipped: only Pods are placed")]
    assert (answer.code, notes) == (0, [])
    result: list[Any] = answer.data["placed"]
    return result


def test_volcano_pods_share_the_first_card() -> None:
    for pod in placed(place("volcano", "gpu-pod1", "gpu-pod2")):
        assert pod["node"] == "gtx1080ti-1"
        assert pod["annotations"].keys() == {"volcano.sh/gpu-index", "volcano.sh/predicate-time"}
        assert pod["annotations"]["volcano.sh/gpu-index"] == "0"
        assert len(pod["annotations"]["volcano.sh/predicate-time"]) == len("1593764466550835304")
        (container,) = pod["containers"]
        printed = {"NVIDIA_VISIBLE_DEVICES": "0", "VOLCANO_GPU_ALLOCATED": "1024", "VOLCANO_GPU_MEMORY_TOTAL": "11178"}
        assert container["env"].items() >= printed.items()
        assert container["cards"] == [{"uuid": "gtx1080ti-1-nvidia-0", "index": 0, "memory_mib": 1024, "cores": 0}]


ALLOCATED = "scheduling.koordinator.sh/device-allocated"
PRINTED = (
    '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"11520Mi",'
    '"koordinator.sh/gpu-memory-ratio":"50"}}]}'
)


def test_koordinator_pod_gets_half_of_the_second_card() -> None:
    (pod,) = placed(place("koordinator", "pod"))
    card = "GPU-0b7d1f52-3f0e-4a5c-9c86-4f6f2d0a0002"
    assert pod["annotations"][ALLOCATED] == PRINTED.replace("}}]}", f'}},"id":"{card}"}}]}}')
    (container,) = pod["containers"]
    assert container["cards"] == [{"uuid": card, "index": 1, "memory_mib": 11520, "cores": 50}]
    assert container["env"]["NVIDIA_VISIBLE_DEVICES"] == card
    assert container["env"]["CUDA_DEVICE_MEMORY_LIMIT"] == str(11520 << 20)


def test_koordinator_annotation_is_the_printed_one_where_cards_have_no_id(tmp_path: Path) -> None:
    text = (EXAMPLES / "clusters/koordinator.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("    id: ")]
    cluster = write(tmp_path / "cluster.yaml", "\n".join(lines))
    answer = subak("place", "-f", EXAMPLES / "koordinator/pod.yaml", "--cluster", cluster, "-o", "json")
    (pod,) = answer.data["placed"]
    assert pod["annotations"][ALLOCATED] == PRINTED


def test_moore_threads_pod_gets_a_third_of_a_card() -> None:
    (pod,) = placed(place("moore-threads", "pod"))
    annotations = pod["annotations"]
    assert annotations["hami.io/mthreads-vgpu-devices-allocated"] == "s4000-1-mthreads-0,Mthreads,16384,8:;"
    assert (annotations["mthreads.com/gpu-index"], annotations["mthreads.com/predicate-node"]) == ("0", "s4000-1")
    (container,) = pod["containers"]
    assert container["env"] == {
        "MTHREADS_VISIBLE_DEVICES": "0",
        "MTHREADS_QOS_MEMORY_LIMIT": str(32 * 512 << 20),
        "MTHREADS_QOS_COMPUTING_POWER_WEIGHT": "8",
    }


def test_iluvatar_pods_of_both_generations() -> None:
    older, newer = placed(place("iluvatar", "pod", "bi-v150"))
    assert (older["node"], newer["node"]) == ("mr-v100-1", "bi-v150-1")
    assert older["containers"][0]["cards"][0]["memory_mib"] == 64 * 256
    held = older["annotations"]["hami.io/iluvatar-vgpu-devices-allocated"]
    assert held == "mr-v100-1-iluvatar-0,Iluvatar,16384,50:;"
    assert newer["annotations"]["hami.io/BI-V150-devices-allocated"].endswith(",BI-V150,16384,50:;")
    for pod in (older, newer):
        assert pod["annotations"]["iluvatar.ai/gpu-assigned"] == "false"
        assert pod["annotations"]["iluvatar.ai/predicate-gpu-idx-0"] == str(pod["containers"][0]["cards"][0]["index"])


def test_metax_pods_get_a_part_of_a_card_and_a_whole_one() -> None:
    part, whole = placed(place("metax", "sgpu/pod", "gpu/pod"))
    assert (part["node"], whole["node"]) == ("mxc500-sgpu-1", "mxc500-1")
    (share,) = part["containers"][0]["cards"]
    assert (share["memory_mib"], share["cores"]) == (4096, 60)
    cut = json.loads(part["annotations"]["metax-tech.com/gpu-devices-allocated"])
    assert cut == [[{"uuid": share["uuid"], "compute": 60, "vRam": 4096}]]
    (card,) = whole["containers"][0]["cards"]
    assert card["cores"] == 100
    assert whole["annotations"]["hami.io/metax-gpu-devices-allocated"] == f"{card['uuid']},Metax-GPU,65536,100:;"


def test_metax_annotation_as_printed_is_an_error_that_says_where_and_how() -> None:
    answer = place("metax", "invalid/pod")
    assert answer.code == 2
    assert "metax/invalid/pod.yaml:5:45: not valid YAML: mapping values are not allowed" in answer.err
    assert "indented below it, as in\n  annotations:\n    key: value" in answer.err


def test_three_systems_share_one_card_and_a_pod_that_is_too_big_waits() -> None:
    answer = place("shared", *PODS["shared"], "4-too-big")
    assert (answer.code, answer.err) == (1, "")
    held = {each["name"]: each["containers"][0]["cards"] for each in answer.data["placed"]}
    assert {name: [(card["uuid"], card["memory_mib"]) for card in cards] for name, cards in held.items()} == {
        "hami": [(A10, 8000)],
        "volcano": [(A10, 6144)],
        "koordinator": [(A10, 5757)],
    }
    assert answer.pending["name"] == "too-big"
    assert answer.pending["reasons"] == {"CardInsufficientMemory": 1}
    assert "largest free slice 3,127 MiB, 4,096 MiB asked" in answer.pending["message"]


def test_the_three_share_the_card_in_the_whole_cluster_too() -> None:
    answer = place("shared", *PODS["shared"], "4-too-big", cluster="all")
    assert {card["uuid"] for each in answer.data["placed"] for card in each["containers"][0]["cards"]} == {A10}
    assert answer.pending["reasons"] == {"CardInsufficientMemory": 1, "NodeSelectorMismatch": 7}


GANGS = {
    "volcano/gang/training": ("volcano", "default/training", 3),
    "volcano/gang/serving": ("volcano", "default/serving", 2),
    "volcano/gang/too-big": ("volcano", "default/too-big", 9),
    "koordinator/gang/gangs": ("koordinator", "default/leaders,default/workers", 3),
    "koordinator/gang/podgroup": ("koordinator", "default/pair", 2),
}


@pytest.mark.parametrize("name", GANGS)
def test_the_pods_of_a_gang_agree_on_how_many_start(name: str) -> None:
    objects = list(yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text()))
    groups = [
        msgspec.convert(each, GROUPS[resource]).as_group()
        for each in objects
        for resource in GROUPS
        if (each["apiVersion"], each["kind"]) == (resource.api_version, resource.kind)
    ]
    pods = [each for each in objects if each["kind"] == "Pod"]
    pods += [each["spec"]["template"] for each in objects if each["kind"] == "Job"]
    members = [gangs.membership(msgspec.convert(each, manifest.Pod)) for each in pods]
    words, full, least = GANGS[name]
    assert {(each.words, each.name) for each in members if each} == {(words, full)}
    assert None not in members
    terms = gangs.agreed([each for each in members if each], next(iter(groups), None))
    assert terms is not None
    assert (terms.min_member, terms.warnings) == (least, ())


def test_members_of_gangs_share_cards() -> None:
    serving = placed(place("volcano", "gang/serving"))
    assert {each["containers"][0]["cards"][0]["index"] for each in serving} == {0}
    assert len(placed(place("koordinator", "gang/gangs", "gang/podgroup"))) == 5


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_pod_has_a_place_in_the_whole_cluster(folder: str) -> None:
    assert len(placed(place(folder, *PODS[folder], cluster="all"))) == len(PODS[folder])


def test_the_whole_cluster_is_made_of_the_folders_parts() -> None:
    def objects(path: Path) -> list[Any]:
        return list(yaml.safe_load_all(path.read_text()))

    parts = [each for folder in FOLDERS for each in objects(EXAMPLES / f"clusters/{folder}.yaml")]
    assert objects(EXAMPLES / "clusters/all.yaml") == parts
