"""`subak queues`: how queues stand, for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from subak.batch.overview import JobView, QueueView
from subak.cli.queues import _show_jobs, _show_queues
from tests.support.commands import subak, write
from tests.support.live import Live, live

GIB = 1 << 30
HARDWARE = """
nodes:
- {profile: shared, name: here, taints: [], cards: {memory: 16384Mi}}
"""


def drawn(*views: QueueView, wide: bool = False) -> list[str]:
    console = Console(width=200, force_terminal=False, highlight=False, soft_wrap=True)
    with console.capture() as capture:
        _show_queues(console, views, wide)
    return capture.get().splitlines()


def view(name: str, **facts: Any) -> QueueView:
    return QueueView(**{"name": name, "state": "Open", "deserved": {}, **facts})


def test_a_queue_is_drawn_with_what_it_holds_of_what_it_deserves() -> None:
    half = view(
        "research",
        weight=3,
        groups={"Running": 2, "Inqueue": 5},
        pods_running=2,
        pods_waiting=6,
        held={"nvidia/memory": 24 * GIB, "cpu": 1500},
        deserved={"nvidia/memory": 48 * GIB, "cpu": 3000},
        asked={"nvidia/memory": 96 * GIB, "cpu": 3000},
    )
    assert drawn(half) == [
        "QUEUE     STATE  WEIGHT  GROUPS         PODS                                          HELD  DESERVED   ASKED",
        "research  Open        3  2 run, 5 wait  2 run, 6 wait  NVIDIA memory  ██████······  24 GiB    48 GiB  96 GiB",
    ]


def test_without_cards_processors_and_memory_are_shown_and_wide_shows_everything() -> None:
    amounts: dict[str, Any] = {"held": {"cpu": 500, "pods": 1}, "deserved": {"cpu": 1000}, "asked": {"cpu": 1000}}
    plain = view("a", **amounts, capability={"cpu": 2000})
    (row,) = drawn(plain)[1:]
    assert row.split() == ["a", "Open", "1", "-", "-", "cpu", "██████······", "0.5", "1", "1"]
    wide = drawn(plain, wide=True)
    assert "AT MOST" in wide[0]
    assert wide[1].endswith("0.5         1      1        2")


@pytest.mark.parametrize(
    ("held", "overused", "note"), [(48, False, ""), (48, True, "has its share"), (60, True, "above its share")]
)
def test_a_queue_that_gets_nothing_more_is_said_to_have_its_share(held: int, overused: bool, note: str) -> None:
    amounts: dict[str, Any] = {"deserved": {"nvidia/memory": 48 * GIB}, "asked": {"nvidia/memory": 96 * GIB}}
    full = view("a", held={"nvidia/memory": held * GIB}, overused=overused, pods_waiting=1, **amounts)
    assert drawn(full)[1].endswith(note or "96 GiB")


def test_where_queues_share_nothing_there_is_no_bar() -> None:
    alone = view("a", deserved=None, held={"cpu": 1000}, asked={"cpu": 1000})
    assert drawn(alone)[1].split() == ["a", "Open", "1", "-", "-", "cpu", "1", "-", "1"]


def test_a_queue_without_jobs_has_one_line() -> None:
    assert [line.split() for line in drawn(view("a"), view("b"))[1:]] == [
        ["a", "Open", "1", "-", "-"],
        ["b", "Open", "1", "-", "-"],
    ]


def test_jobs_are_numbered_in_the_order_in_which_they_are_tried(capsys: pytest.CaptureFixture[str]) -> None:
    asked: dict[str, float] = {"nvidia/memory": 8 * GIB, "nvidia/cores": 10}
    _show_jobs(
        [
            JobView(name="x/gang", words="volcano", phase="Inqueue", min_member=4, waiting=4, asked=asked),
            JobView(name="x/half", words="volcano", phase="Inqueue", min_member=2, waiting=1, ready=1, half_bound=True),
            JobView(name="x/pod", ready=1, held={"nvidia/cards": 1}, asked={"nvidia/cards": 1}),
        ]
    )
    assert capsys.readouterr().out.splitlines() == [
        "",
        "   JOB     PHASE       PRIORITY  PODS           AT LEAST  HOLDS                WAITS FOR",
        "1  x/gang  Inqueue            0  4 wait                4  -                    8 GiB of NVIDIA memory",
        "2  x/half  half bound         0  1 run, 1 wait         2  -                    -",
        "   x/pod   Running            0  1 run                 1  1 whole NVIDIA card  -",
    ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("hardware")
    (folder / "hardware.yaml").write_text(HARDWARE)
    with live("--hardware", folder / "hardware.yaml", "--runtime", "none") as running:
        objects: list[dict[str, Any]] = [queue("research", 3, {"volcano.sh/gpu-memory": 8192})]
        objects += [pod(f"p{i}", "research", 4096) for i in range(3)] + [pod("lost", "nowhere", 1)]
        objects.append(group("gang", "research", 2))
        content = {"apiVersion": "v1", "kind": "List", "items": objects}
        running.run("subak", "apply", "-f", "-", stdin=json.dumps(content))
        running.subak("wait", "--for=jsonpath={.spec.nodeName}=here", "pod/p0", "pod/p1")
        yield running


def queue(name: str, weight: int, capability: dict[str, Any]) -> dict[str, Any]:
    spec = {"weight": weight, "capability": capability}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def group(name: str, queue: str, least: int) -> dict[str, Any]:
    spec = {"minMember": least, "queue": queue}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def pod(name: str, queue: str, mib: int) -> dict[str, Any]:
    limits = {"volcano.sh/gpu-memory": mib}
    container = {"name": "c", "image": "busybox", "command": ["sleep", "600"], "resources": {"limits": limits}}
    annotations = {"scheduling.volcano.sh/queue-name": queue}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"schedulerName": "volcano", "containers": [container]},
    }


@pytest.fixture
def _speak_to_it(cluster: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))


@pytest.mark.usefixtures("_speak_to_it")
def test_a_live_cluster_shows_its_queues() -> None:
    answer = subak("queues")
    assert answer.code == 0
    found = {line.split()[0]: line for line in answer.out.splitlines()}
    assert "2 run, 1 wait" in found["research"]
    assert "8 GiB     8 GiB  12 GiB" in found["research"]
    assert found["nowhere"].split()[1] == "Missing"
    assert "queue nowhere does not exist: its pods wait until it is created" in answer.err


@pytest.mark.usefixtures("_speak_to_it")
def test_scripts_get_all_numbers() -> None:
    answer = subak("queues", "research", "-o", "json")
    (found,) = json.loads(answer.out)["queues"]
    assert found["capability"] == {"nvidia/memory": 8 * GIB}
    assert found["held"] == {"nvidia/memory": 8 * GIB, "pods": 2}
    assert (found["weight"], found["pods_running"], found["pods_waiting"]) == (3, 2, 1)
    assert [job["name"] for job in found["jobs"] if job["waiting"]] == ["default/p2"]
    assert {job["name"]: job["min_member"] for job in found["jobs"]}["default/gang"] == 2
    assert "jobs" not in json.loads(subak("queues", "-o", "json").out)["queues"][0]


@pytest.mark.usefixtures("_speak_to_it")
def test_one_queue_is_shown_with_its_jobs() -> None:
    answer = subak("queues", "research")
    assert "default/p2" in answer.out
    assert "4 GiB of NVIDIA memory" in answer.out


@pytest.mark.usefixtures("_speak_to_it")
def test_a_queue_that_is_not_there_is_an_error_that_names_the_others() -> None:
    answer = subak("queues", "resaerch")
    assert answer.code == 2
    assert "queue resaerch is not there; there are: default, nowhere, research" in answer.err


def test_the_help_says_what_a_queue_deserves() -> None:
    answer = subak("queues", "--help")
    assert "A queue deserves a part of the cluster by its weight" in " ".join(answer.out.split())


def test_without_a_cluster_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "none.yaml", [])))
    assert subak("queues").code == 2
