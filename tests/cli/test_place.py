"""`subak place`: the stable JSON, exit codes, one ledger for everything, and what it says to bad pods and nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.bombs import BOMB
from tests.support.commands import Content, Object, asking, node, offering, place, pod, running, subak, write

GOOD = offering("good", 1000)
REGISTER = "GPU-a,10,1000,100,NVIDIA-T4,0,true:"

SHARE = {"uuid": str, "index": int, "memory_mib": int, "cores": int}
MOUNT = {"source": str, "destination": str, "read_only": bool}
CONTAINER = {"name": str, "cards": [SHARE], "env": {str: str}, "mounts": [MOUNT]}
PLACED = {"namespace": str, "name": str, "node": str, "annotations": {str: str}, "containers": [CONTAINER]}
PENDING = {"namespace": str, "name": str, "message": str, "reasons": {str: int}}
REJECTED = {"namespace": str, "name": str, "field": str, "value": str, "message": str}
OUTPUT = {"placed": [PLACED], "pending": [PENDING], "rejected": [REJECTED]}
"""The stable interface: exactly these keys and types."""


def check_shape(value: Any, shape: Any) -> None:
    match shape:
        case type():
            assert type(value) is shape, value
        case [each]:
            assert isinstance(value, list)
            for member in value:
                check_shape(member, each)
        case dict() if str in shape:
            assert all(type(key) is str and type(member) is shape[str] for key, member in value.items()), value
        case dict():
            assert list(value) == list(shape)
            for key, each in shape.items():
                check_shape(value[key], each)


def test_the_json_has_exactly_the_promised_keys_and_types(tmp_path: Path) -> None:
    pods = [asking(100, "fits"), asking(5000, "waits"), asking("16gb", "wrong")]
    answer = place(tmp_path, pods, GOOD)
    check_shape(answer.data, OUTPUT)
    assert [len(answer.data[key]) for key in OUTPUT] == [1, 1, 1]
    (fits,) = answer.data["placed"]
    (container,) = fits["containers"]
    assert (fits["namespace"], fits["name"], fits["node"]) == ("default", "fits", "good")
    assert container["cards"] == [{"uuid": "good-nvidia-0", "index": 0, "memory_mib": 100, "cores": 0}]
    assert container["mounts"][1]["destination"] == "/usr/local/vgpu/libvgpu.so"


def test_yaml_output_says_the_same(tmp_path: Path) -> None:
    answer = place(tmp_path, asking(100), GOOD, "-o", "yaml")
    check_shape(yaml.safe_load(answer.out), OUTPUT)


@pytest.mark.parametrize(
    ("pods", "code"),
    [
        ([asking(100)], 0),
        ([pod({"cpu": "1"})], 0),
        ([asking(100, "a"), asking(5000, "b")], 1),
        ([asking(100, "a"), asking("16gb", "b")], 2),
        ([asking(5000, "a"), asking("16gb", "b")], 2),
    ],
)
def test_exit_codes(tmp_path: Path, pods: list[Object], code: int) -> None:
    assert place(tmp_path, pods, GOOD).code == code


def test_a_waiting_pod_has_its_reason_with_numbers(tmp_path: Path) -> None:
    pending = place(tmp_path, asking(1024), [offering("a", 512), offering("b", 500), node("c")]).pending
    assert pending["reasons"] == {"CardInsufficientMemory": 2, "NodeUnregistered": 1}
    assert pending["message"] == (
        "0 of 3 nodes fit: 2 nodes: largest free slice 512 MiB, 1,024 MiB asked (CardInsufficientMemory); "
        "1 node: volcano-share not offered (NodeUnregistered)"
    )


def test_without_nodes_every_pod_waits(tmp_path: Path) -> None:
    answer = place(tmp_path, asking(1), {"kind": "NodeList", "items": []})
    assert (answer.code, answer.pending["message"], answer.pending["reasons"]) == (1, "there are no nodes", {})


def test_pods_share_the_ledger_in_the_order_in_which_they_are_given(tmp_path: Path) -> None:
    cluster = write(tmp_path / "cluster.yaml", GOOD)
    first = write(tmp_path / "first.yaml", [asking(400, "a"), asking(400, "b")])
    second = write(tmp_path / "second.yaml", [asking(400, "c"), asking(200, "d")])
    forwards = subak("place", "-f", first, "-f", second, "--cluster", cluster, "-o", "json")
    assert (list(forwards.nodes), forwards.pending["name"]) == (["a", "b", "d"], "c")
    backwards = subak("place", "-f", second, "-f", first, "--cluster", cluster, "-o", "json")
    assert (list(backwards.nodes), backwards.pending["name"]) == (["c", "d", "a"], "b")


def test_two_pods_of_one_name_are_two_pods(tmp_path: Path) -> None:
    answer = place(tmp_path, [asking(400), asking(400), asking(400)], GOOD)
    assert [len(answer.data[key]) for key in OUTPUT] == [2, 1, 0]


def test_lists_are_taken_apart(tmp_path: Path) -> None:
    pods = {"kind": "List", "items": [asking(400, "a"), {"kind": "PodList", "items": [asking(400, "b")]}]}
    nameless = {key: value for key, value in GOOD.items() if key != "kind"}
    answer = place(tmp_path, pods, {"kind": "NodeList", "items": [nameless]})
    assert answer.nodes == {"a": "good", "b": "good"}


def test_pods_or_the_cluster_come_from_standard_input(tmp_path: Path) -> None:
    pods, cluster = write(tmp_path / "pods.yaml", asking(100)), write(tmp_path / "cluster.yaml", GOOD)
    piped = subak("place", "-f", "-", "--cluster", cluster, "-o", "json", stdin=pods.read_bytes())
    assert (piped.code, piped.nodes) == (0, {"p": "good"})
    piped = subak("place", "-f", pods, "--cluster", "-", "-o", "json", stdin=cluster.read_bytes())
    assert (piped.code, piped.nodes) == (0, {"p": "good"})
    both = subak("place", "-f", "-", "--cluster", "-", stdin=cluster.read_bytes())
    assert both.code == 2
    assert "only once" in both.err


def test_several_cluster_files_make_one_cluster(tmp_path: Path) -> None:
    pods = write(tmp_path / "pods.yaml", asking(600))
    nodes, held = write(tmp_path / "nodes.yaml", GOOD), write(tmp_path / "held.yaml", running(600, "good"))
    assert subak("place", "-f", pods, "--cluster", nodes).code == 0
    assert subak("place", "-f", pods, "--cluster", held, "--cluster", nodes).code == 1


@pytest.mark.parametrize(
    ("existing", "code"),
    [
        (running(600, "good"), 1),
        (running(600, "good", phase="Succeeded"), 0),
        (running(600, "good", phase="Failed"), 0),
        (running(600, on=""), 0),
        (running(300, "good"), 0),
    ],
)
def test_only_pods_that_run_count(tmp_path: Path, existing: Object, code: int) -> None:
    answer = place(tmp_path, asking(600), [GOOD, existing])
    assert (answer.code, answer.err) == (code, "")


def test_a_pod_that_runs_elsewhere_is_told_and_not_counted(tmp_path: Path) -> None:
    answer = place(tmp_path, asking(600), [GOOD, running(600, "gone")])
    assert answer.nodes == {"p": "good"}
    assert "pod default/running runs on gone, which is not in the cluster" in answer.err


@pytest.mark.parametrize("record", [{}, {"volcano.sh/gpu-index": "first"}])
def test_a_running_pod_without_a_usable_record_counts_on_every_card_that_it_may_hold(
    tmp_path: Path, record: dict[str, str]
) -> None:
    silent = asking(600, "silent", annotations=record, nodeName="good")
    answer = place(tmp_path, asking(600), [GOOD, silent])
    assert answer.code == 1
    assert "does not say which cards of good it holds; counted on each that it may hold" in answer.err


def test_a_record_of_a_card_that_the_node_does_not_have_names_that_card(tmp_path: Path) -> None:
    record = {"hami.io/vgpu-devices-allocated": "GPU-gone,NVIDIA,1000,5:;"}
    astray = pod({"nvidia.com/gpu": 1}, "astray", record, nodeName="n")
    answer = place(tmp_path, pod({"nvidia.com/gpu": 1}), [node("n", register=REGISTER), astray])
    assert "pod default/astray has a record of GPU-gone, which n does not have; counted on each" in answer.err


def test_a_malformed_record_of_a_running_pod_does_not_free_its_card(tmp_path: Path) -> None:
    broken = pod({"nvidia.com/gpu": 1}, "broken", {"hami.io/vgpu-devices-allocated": "GPU-a,x:;"}, nodeName="n")
    answer = place(tmp_path, pod({"nvidia.com/gpu": 1}), [node("n", register=REGISTER), broken])
    assert answer.code == 1
    assert "'GPU-a,x' in a device string has 2 fields" in answer.err


def test_pods_that_say_what_they_hold_are_booked_before_those_that_do_not(tmp_path: Path) -> None:
    silent = asking(600, "silent", nodeName="two")
    answer = place(tmp_path, asking(600), [offering("two", 1000, cards=2), silent, running(600, "two")])
    assert answer.pending["message"].startswith("0 of 1 nodes fit: 1 node: largest free slice 400 MiB, 600 MiB asked")


def test_a_quota_of_the_cluster_file_holds(tmp_path: Path) -> None:
    quota = {
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"limits.volcano.sh/gpu-memory": "500"}},
    }
    answer = place(tmp_path, [asking(400, "a"), asking(400, "b")], [GOOD, quota])
    assert (answer.code, answer.nodes) == (1, {"a": "good"})
    assert answer.pending["reasons"] == {"ResourceQuotaNotFit": 1}
    assert "allows 500 MiB, 400 used, 400 asked" in answer.pending["message"]


LIMITS = "spec.containers[0].resources.limits"
MEMORY = f"{LIMITS}[volcano.sh/gpu-memory]"


@pytest.mark.parametrize(
    ("given", "field", "value", "message"),
    [
        (asking("16gb"), MEMORY, "16gb", "is not a quantity"),
        (asking("16gb"), MEMORY, "16gb", "takes a whole number of MiB"),
        (asking(-1), MEMORY, "-1", "must not be negative"),
        (asking(1.5), MEMORY, "1.5", "is not a whole number"),
        (asking("0.5"), MEMORY, "0.5", "is not a whole number"),
        (asking(True), MEMORY, "True", "expected `int | float | str`, got `bool`"),
        (asking(None), MEMORY, "", "got `null`"),
        (asking([1]), MEMORY, "[1]", "got `array`"),
        (asking("9" * 20), MEMORY, "9" * 20, "counts MiB"),
        (pod({"nvidia.com/gpu": "0.5"}), f"{LIMITS}[nvidia.com/gpu]", "0.5", "whole number of cards"),
        (
            pod({"nvidia.com/gpu": 1, "volcano.sh/gpu-memory": 100}),
            LIMITS,
            "nvidia.com/gpu, volcano.sh/gpu-memory",
            "keep to one of them",
        ),
        (
            pod({"koordinator.sh/gpu-core": 50}),
            "spec.containers[0].resources.requests",
            "",
            "GPU memory and GPU memory ratio all is zero: give one of them",
        ),
        (
            pod({"koordinator.sh/gpu-memory": "8Gi", "koordinator.sh/gpu-memory-ratio": 50}),
            "spec.containers[0].resources.requests",
            "",
            "give only one of them",
        ),
        (
            pod({"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 33}),
            f"{LIMITS}[mthreads.com/sgpu-memory]",
            "33",
            "valid values are [2, 4, 8, 16, 32, 64, 96]",
        ),
        (
            pod({"nvidia.com/gpu": 1}, annotations={"hami.io/node-scheduler-policy": "packed"}),
            "metadata.annotations[hami.io/node-scheduler-policy]",
            "packed",
            "use binpack, spread",
        ),
        (
            pod({"nvidia.com/gpu": 1}, annotations={"hami.io/gpu-scheduler-policy": "[red]x"}),
            "metadata.annotations[hami.io/gpu-scheduler-policy]",
            "[red]x",
            "use binpack, spread, mutex, topology-aware, numa",
        ),
        (
            asking(1, annotations={"note": 12}),
            "metadata.annotations[note]",
            "12",
            "must be a text: put 12 in quotes",
        ),
        (asking(1, annotations={"note": True}), "metadata.annotations[note]", "True", "put true in quotes"),
        (asking(1, annotations={"note": None}), "metadata.annotations[note]", "", "must be a text"),
        (
            asking(1, annotations={"volcano.sh/gpu-index": "0"}),
            "metadata.annotations[volcano.sh/gpu-index]",
            "0",
            "only the scheduler may write",
        ),
        (asking(1, nodeName="good"), "spec.nodeName", "good", "leave spec.nodeName empty"),
        (asking(1, "Upper"), "metadata.name", "Upper", "use lower-case letters"),
        (asking(1, ""), "metadata.name", "", "the pod has no name"),
        (asking(1, nodeSelector={"zone": 1}), "spec.nodeSelector[zone]", "1", "expected `str`, got `int`"),
        (pod({1: 1}), LIMITS, "{1: 1}", "a key must be a text"),
        ({"kind": "Pod", "metadata": "p", "spec": {}}, "metadata", "p", "expected `object`, got `str`"),
        ({"kind": "Pod", "metadata": {"name": "p"}}, "spec.containers", "", "the pod has no containers"),
        (
            {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"image": "x"}]}},
            "spec.containers[0]",
            "{'image': 'x'}",
            "missing required field `name`",
        ),
    ],
)
def test_a_pod_that_cannot_mean_anything_is_rejected_with_field_value_and_remedy(
    tmp_path: Path, given: Object, field: str, value: str, message: str
) -> None:
    answer = place(tmp_path, given, GOOD)
    rejected = answer.rejected
    assert (answer.code, rejected["field"], rejected["value"]) == (2, field, value)
    assert message in rejected["message"]


def test_requests_and_limits_must_agree(tmp_path: Path) -> None:
    torn = asking(100)
    torn["spec"]["containers"][0]["resources"]["requests"] = {"volcano.sh/gpu-memory": 200}
    rejected = place(tmp_path, torn, GOOD).rejected
    assert rejected["field"] == "spec.containers[0].resources.requests[volcano.sh/gpu-memory]"
    assert rejected["message"] == "volcano.sh/gpu-memory requests 200 but its limit is 100: they must be equal"


DEVICE: Object = {"kind": "Device", "metadata": {"name": "bad"}, "spec": {"devices": []}}


def device(**fields: Any) -> Object:
    return {**DEVICE, "spec": {"devices": [{"type": "gpu", "minor": 0, "health": True, **fields}]}}


@pytest.mark.parametrize(
    ("bad", "warning"),
    [
        ([node("bad", register="[{oops")], "node bad: annotation hami.io/node-nvidia-register: JSON is malformed"),
        ([node("bad", register='[{"id":1}]')], "Expected `str`, got `int` - at `$[0].id`"),
        ([node("bad", register="GPU-a,ten,1000,100,T4,0,true:")], "count, MiB, cores, numa and index must be numbers"),
        ([node("bad", register="GPU-a")], "each card must end with ':'"),
        ([node("bad", {"volcano.sh/gpu-memory": "lots", "volcano.sh/gpu-number": 1})], "'lots' is not a quantity"),
        ([node("bad", {"cpu": "many"})], "node bad: allocatable cpu: 'many' is not a quantity"),
        ([{**node("bad"), "status": "ready"}], "Node bad: status: expected `object`, got `str`; ignored"),
        ([{"kind": "Node", "metadata": {}}], "a Node without metadata.name is ignored"),
        ([{"kind": "Node", "metadata": "bad"}], "a Node without metadata.name is ignored"),
        ([node("bad"), device(resources={"koordinator.sh/gpu-memory": "lots"})], "Device bad: gpu 0: 'lots' is not"),
        ([node("bad"), device(minor="one")], "Device bad: spec.devices[0].minor: expected `int`, got `str`; ignored"),
        ([DEVICE], "Device bad belongs to no node of the cluster; ignored"),
        ([running(1, "good", name="r") | {"spec": 1}], "Pod r: spec: expected `object`, got `int`; ignored"),
        (
            [offering("good", 1000), offering("good", 2000)],
            "Node good was given before and differs; the last one counts",
        ),
    ],
)
def test_a_malformed_object_of_the_cluster_never_stops_the_others(
    tmp_path: Path, bad: list[Object], warning: str
) -> None:
    answer = place(tmp_path, asking(1000), [*bad, GOOD])
    assert (answer.code, answer.nodes) == (0, {"p": "good"})
    assert answer.err.startswith("warning: ")
    assert warning in answer.err


def test_the_same_object_given_twice_is_no_contradiction(tmp_path: Path) -> None:
    answer = place(tmp_path, asking(600), [GOOD, running(300, "good"), GOOD, running(300, "good")])
    assert (answer.code, answer.err) == (0, "")


def test_a_node_given_twice_keeps_its_device_object(tmp_path: Path) -> None:
    described = device(resources={"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory": "1000Mi"})
    asks = pod({"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 50})
    assert place(tmp_path, asks, [node("bad"), described, node("bad")]).nodes == {"p": "bad"}


def test_the_good_among_the_bad_are_placed(tmp_path: Path) -> None:
    parts = [asking(100, "a"), asking("16gb", "b"), asking(100, "c"), asking(5000, "d")]
    one, two, three, four = (yaml.safe_dump(each) for each in parts)
    answer = place(tmp_path, "---\n".join([one, "broken: [\n", two, three, "just a text\n", four]), GOOD)
    assert (answer.code, list(answer.nodes)) == (2, ["a", "c"])
    assert (answer.rejected["name"], answer.pending["name"]) == ("b", "d")
    assert answer.err.count("error: ") == 2


def test_other_kinds_are_skipped_with_a_note(tmp_path: Path) -> None:
    answer = place(tmp_path, [{"kind": "Service", "metadata": {"name": "s"}}, asking(1)], GOOD)
    assert (answer.code, answer.nodes) == (0, {"p": "good"})
    assert "note: " in answer.err
    assert "Service skipped: only Pods are placed" in answer.err


def test_files_without_any_pod_are_bad_input(tmp_path: Path) -> None:
    answer = place(tmp_path, {"kind": "Deployment", "metadata": {"name": "d"}}, GOOD)
    assert answer.code == 2
    assert "there is no Pod in the files" in answer.err


def test_text_shows_who_shares_which_card(tmp_path: Path) -> None:
    pods = [asking(300, "a"), asking(200, "b"), asking(900, "c"), asking("16gb", "d")]
    answer = place(tmp_path, pods, GOOD, "-o", "text")
    assert "default/a -> good\n    c: card 0 300 MiB 0 cores\n        NVIDIA_VISIBLE_DEVICES=0\n" in answer.out
    assert "default/c waits: 0 of 1 nodes fit: 1 node: largest free slice 500 MiB, 900 MiB asked" in answer.out
    assert "default/d rejected: '16gb' is not a quantity" in answer.out
    assert [line.split() for line in answer.out.splitlines()[-3:]] == [
        ["0", "nvidia", "█" * 12 + "·" * 12, "500/1,000", "0/100", "0/1,000"],
        ["default/a", "300", "-", "-"],
        ["default/b", "200", "-", "-"],
    ]
    assert "libvgpu.so" not in answer.out
    assert "/usr/local/vgpu/libvgpu.so (ro)" in place(tmp_path, pods, GOOD, "-o", "wide").out


@pytest.mark.parametrize("text", ["[/x]", "[red]", ":key:"])
def test_text_shows_names_and_values_as_they_are(tmp_path: Path, text: str) -> None:
    odd = asking(1, annotations={})
    waits = asking(1, "waits", nodeSelector={"zone": text})
    out = place(tmp_path, [odd, waits, asking(1, text)], offering(text, 1000), "-o", "text").out
    assert f"default/p -> {text}\n" in out
    assert f"label zone={text} missing" in out
    assert f"default/{text} rejected: " in out


def test_names_of_resources_come_from_the_device_config(tmp_path: Path) -> None:
    config = write(tmp_path / "config.yaml", "nvidia: {resourceCountName: example.com/gpu}\n")
    asks, cluster = pod({"example.com/gpu": 1}), node("n", register=REGISTER)
    assert place(tmp_path, asks, cluster).code == 1
    answer = place(tmp_path, asks, cluster, "-o", "json", "--device-config", str(config))
    assert answer.nodes == {"p": "n"}
    wrapped: Content = {"kind": "ConfigMap", "data": {"device-config.yaml": config.read_text()}}
    write(config, wrapped)
    assert place(tmp_path, asks, cluster, "-o", "json", "--device-config", str(config)).nodes == {"p": "n"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nvidia: {defaultMemory: lots}", "Expected `int`, got `str` - at `$.nvidia.defaultMemory`"),
        ("koordinator: {scoringStrategy: Best}", "use LeastAllocated or MostAllocated"),
        ("nvidia: a: b", "config.yaml:1:10: not valid YAML"),
        ("nvidia: " + "[" * 100_000, "config.yaml:1:108: not valid YAML: exceeded max depth of 100"),
        ({"kind": "ConfigMap", "data": {"device-config.yaml": BOMB}}, "document contains excessive aliasing"),
        ({"kind": "ConfigMap", "data": None}, "the ConfigMap holds no data[device-config.yaml]"),
        ({"kind": "ConfigMap", "data": {"device-config.yaml": "a: b: c"}}, "device-config.yaml:1:5: not valid YAML"),
        (b"\xff", "it is not UTF-8 text"),
    ],
)
def test_a_bad_device_config_is_an_error(tmp_path: Path, content: Content, message: str) -> None:
    config = write(tmp_path / "config.yaml", content)
    answer = place(tmp_path, asking(1), GOOD, "--device-config", str(config))
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err


def test_a_misspelt_key_of_the_device_config_is_warned_about(tmp_path: Path) -> None:
    config = write(tmp_path / "config.yaml", "nvidia: {resourceCountname: example.com/gpu}\n")
    answer = place(tmp_path, asking(1), GOOD, "--device-config", str(config))
    assert answer.code == 0
    assert "warning: device-config: key nvidia.resourceCountname is unknown" in answer.err
    assert "did you mean resourceCountName?" in answer.err


@pytest.mark.parametrize(
    "arguments", [["--help"], ["place", "--help"], ["explain", "-h"], ["--version"]], ids=lambda each: " ".join(each)
)
def test_help(arguments: list[str]) -> None:
    answer = subak(*arguments)
    assert (answer.code, answer.err) == (0, "")
    assert "subak" in answer.out


@pytest.mark.parametrize(
    "arguments", [["place"], ["plac"], ["place", "-f", "x"], ["place", "-f", "x", "--cluster", "y", "-o", "xml"]]
)
def test_wrong_use_is_told_with_exit_2(arguments: list[str]) -> None:
    answer = subak(*arguments)
    assert answer.code == 2
    assert "Try 'subak" in answer.err


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_installed_program(tmp_path: Path, encoding: str) -> None:
    pods = write(tmp_path / "pods.yaml", [asking(100, "a"), asking(5000, "b"), asking("größer", "c")])
    cluster = write(tmp_path / "cluster.yaml", GOOD)
    program = [str(Path(sys.executable).parent / "subak"), "place", "-f", str(pods), "--cluster", str(cluster)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(program, capture_output=True, check=False, env=environment)
    assert done.returncode == 2
    assert b"default/a -> good" in done.stdout
    assert b"Traceback" not in done.stdout + done.stderr
    done = subprocess.run([*program, "-o", "json"], capture_output=True, check=False, env=environment)
    assert list(json.loads(done.stdout)) == ["placed", "pending", "rejected"]
