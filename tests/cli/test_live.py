"""Commands that speak to a cluster: what people see and what scripts rely on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.commands import Answer, subak, write
from tests.support.live import PATIENCE, Live, live

HARDWARE = """
nodes:
- {profile: shared, name: here, taints: []}
- {profile: moore-threads, name: other, cards: {count: 2, unhealthy: [1]}}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    hardware = tmp_path_factory.mktemp("hardware") / "hardware.yaml"
    hardware.write_text(HARDWARE)
    with live("--hardware", hardware) as running:
        yield running


@pytest.fixture(autouse=True)
def _speak_to_it(cluster: Live, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    yield
    assert subak("delete", "pods", "--all", "-A", "--force").code == 0


def pod(name: str, memory_mib: int = 1_000, command: str = "sleep infinity", **metadata: object) -> dict[str, object]:
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sh", "-c", command],
        "resources": {"limits": {"volcano.sh/gpu-memory": memory_mib}},
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def apply(tmp_path: Path, *pods: dict[str, object]) -> Answer:
    return subak("apply", "-f", write(tmp_path / "pods.yaml", pods))


def wait(cluster: Live, name: str, condition: str = "condition=Ready") -> None:
    cluster.run("kubectl", "wait", f"--for={condition}", f"pod/{name}", f"--timeout={PATIENCE:.0f}s")


def test_apply_says_what_became_of_each_object(cluster: Live, tmp_path: Path) -> None:
    assert apply(tmp_path, pod("a"), pod("b")).out == "pod/a created\npod/b created\n"
    wait(cluster, "a")  # until nobody else changes it
    assert apply(tmp_path, pod("a"), pod("b", labels={"x": "y"})).out == "pod/a unchanged\npod/b configured\n"


def test_apply_reports_what_is_refused_and_applies_the_rest(tmp_path: Path) -> None:
    answer = apply(tmp_path, pod("a", memory_mib=-1), pod("b"))
    assert (answer.code, answer.out) == (1, "pod/b created\n")
    assert "volcano.sh/gpu-memory must not be negative" in answer.err


def test_apply_of_a_kind_that_the_server_does_not_have(tmp_path: Path) -> None:
    answer = apply(tmp_path, {"apiVersion": "v1", "kind": "Gizmo", "metadata": {"name": "a"}}, pod("b"))
    assert (answer.code, answer.out) == (2, "pod/b created\n")
    assert 'no matches for kind "Gizmo" in version "v1"' in answer.err


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    answer = subak("apply", "--dry-run", "-f", write(tmp_path / "pods.yaml", [pod("a")]))
    assert (answer.code, answer.out) == (0, "pod/a created (server dry run)\n")
    assert subak("get", "pods").err == "No resources found in default namespace.\n"


def test_get_prints_the_columns_that_kubectl_prints(cluster: Live, tmp_path: Path) -> None:
    apply(tmp_path, pod("a"))
    wait(cluster, "a")
    ours, theirs = subak("get", "pods").out, cluster.run("kubectl", "get", "pods").stdout
    assert re.sub(r"\d+s", "1s", ours) == re.sub(r"\d+s", "1s", theirs)
    ours, theirs = subak("get", "pods,nodes", "-A").out, cluster.run("kubectl", "get", "pods,nodes", "-A").stdout
    age = re.compile(r" +(AGE|\d+s) *")  # as wide as the oldest is at that moment
    assert age.sub(" AGE ", ours) == age.sub(" AGE ", theirs)


def test_get_of_whole_objects(tmp_path: Path) -> None:
    apply(tmp_path, pod("a", labels={"x": "y"}), pod("b"))
    one = yaml.safe_load(subak("get", "pod", "a", "-o", "yaml").out)
    assert (one["kind"], one["metadata"]["name"]) == ("Pod", "a")
    several = json.loads(subak("get", "po", "-l", "x=y", "-o", "json").out)
    assert (several["kind"], [each["metadata"]["name"] for each in several["items"]]) == ("List", ["a"])
    assert subak("get", "pod/a", "pod/b", "-o", "name").out == "pod/a\npod/b\n"


def test_what_is_not_there(tmp_path: Path) -> None:
    answer = subak("get", "pod", "nobody")
    assert (answer.code, answer.err) == (1, 'Error from server (NotFound): pods "nobody" not found\n')
    answer = subak("get", "gizmos")
    assert (answer.code, answer.err) == (2, 'error: the server doesn\'t have a resource type "gizmos"\n')
    assert subak("get").code == 2
    assert subak("delete", "pod", "nobody").code == 1
    assert subak("delete", "pod", "nobody", "--ignore-not-found").code == 0
    assert subak("delete", "pods").code == 2


def test_describe_tells_a_pod_with_its_events(cluster: Live, tmp_path: Path) -> None:
    apply(tmp_path, pod("a"))
    wait(cluster, "a")
    shown = subak("describe", "pod", "a").out
    for line in ("Name:         a", "Node:         here/127.0.0.1", "volcano.sh/gpu-memory: 1k", "Ready:         True"):
        assert re.sub(" +", " ", line) in re.sub(" +", " ", shown), shown
    assert re.search(r"Normal +Scheduled +\d+s +subak +Successfully assigned default/a to here", shown), shown


def test_what_a_container_says_is_shown_and_not_obeyed_by_the_terminal(cluster: Live, tmp_path: Path) -> None:
    event: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "reason": "Unhealthy",
        "message": "failed: \x1b]0;owned\x07",
    }
    apply(tmp_path, pod("a", command=r"printf '\033]0;owned\007' > /dev/termination-log; exit 3"))
    wait(cluster, "a", "jsonpath={.status.phase}=Failed")
    about = json.loads(subak("get", "pod", "a", "-o", "json").out)["metadata"]
    event["involvedObject"] = {"kind": "Pod", "name": "a", "namespace": "default", "uid": about["uid"]}
    assert apply(tmp_path, event).code == 0
    for command in (("describe", "pod", "a"), ("why", "a")):
        shown = subak(*command).out
        assert shown.count(r"\x1b]0;owned\x07") == 2, shown
        assert "\x1b" not in shown
    assert r"failed: \x1b]0;owned\x07" in subak("get", "events").out


def test_describe_of_a_node_and_of_anything_else() -> None:
    assert "volcano.sh/gpu-memory: 23028" in re.sub(" +", " ", subak("describe", "node", "here").out)
    assert "Name:" in subak("describe", "configmap", "-n", "kube-system").out or subak("describe", "ns").code == 0


def test_logs_and_exec(cluster: Live, tmp_path: Path) -> None:
    apply(tmp_path, pod("a", command="echo one; echo two; sleep infinity"))
    wait(cluster, "a")
    assert subak("logs", "a").out == "one\ntwo\n"
    assert subak("logs", "a", "--tail", "1").out == "two\n"
    assert "VOLCANO_GPU_ALLOCATED=1000" in subak("exec", "a", "--", "env").out.splitlines()
    assert subak("exec", "a", "--", "sh", "-c", "echo wrong >&2; exit 7").code == 7
    assert cluster.run("subak", "exec", "-i", "a", "--", "cat", stdin="hello").stdout == "hello"
    missing = subak("exec", "a", "--", "no-such-program")
    assert missing.code != 0
    assert "no-such-program" in missing.err
    assert "error executing command in container" in missing.err
    apply(tmp_path, pod("b", command="true"))
    wait(cluster, "b", "jsonpath={.status.phase}=Succeeded")
    assert 'container not found ("c")' in subak("exec", "b", "--", "ls").err


def test_top_and_nodes_show_who_holds_what(cluster: Live, tmp_path: Path) -> None:
    apply(tmp_path, pod("a", 4_000), pod("b", 6_000))
    wait(cluster, "a")
    wait(cluster, "b")
    shown = subak("top").out
    assert re.search(r"0 +A10 +█+·+ +10,000/23,028 +0/100 +0/10\n +default/a +4,000 +- +-\n +default/b +6,000", shown)
    assert re.search(r"0 +MTT-S4000 +idle ·+ +0/49,152 +0/16 +0/100", shown)
    (node,) = subak("top", "here", "-o", "json").data["nodes"]
    assert [(each["pod"], each["memory_mib"]) for each in node["cards"][0]["tenants"]] == [
        ("default/a", 4_000),
        ("default/b", 6_000),
    ]
    assert re.search(
        r"here +Ready +1 x A10 +10,000/23,028 +0/100 +2 +hami-nvidia, koordinator, volcano-share", subak("nodes").out
    )
    answer = subak("top", "nowhere")
    assert (answer.code, answer.err) == (2, "error: node nowhere is not there; there are: here, other\n")


@pytest.mark.long
def test_hamis_ten_slots_do_not_limit_volcanos_pods(cluster: Live, tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(11)]
    apply(tmp_path, *(pod(name, 100) for name in names))
    for name in names:
        wait(cluster, name)
    (node,) = subak("top", "here", "-o", "json").data["nodes"]
    assert (len(node["cards"][0]["tenants"]), node["cards"][0]["slots"], node["cards"][0]["slots_used"]) == (11, 10, 0)


def test_a_broken_card_is_told_and_only_what_can_be_given_is_counted() -> None:
    other = node_row("other")
    assert other["cards"].endswith(", 1 unhealthy")
    assert (other["memory_mib"], other["cores"]) == (49_152, 16)
    (node,) = subak("top", "other", "-o", "json").data["nodes"]
    assert [each["healthy"] for each in node["cards"]] == [True, False]
    assert re.search(r"1 +MTT-S4000 +unhealthy +- +- +-\n", subak("top", "other").out)


def test_what_is_held_of_a_broken_card_stays_shown(cluster: Live, tmp_path: Path) -> None:
    apply(tmp_path, pod("a", 4_000))
    wait(cluster, "a")
    cluster.run("kubectl", "annotate", "node", "here", "volcano.sh/gpu-unhealthy-ids=0")
    try:
        row = node_row("here")
    finally:
        cluster.run("kubectl", "annotate", "node", "here", "volcano.sh/gpu-unhealthy-ids-")
    assert row["cards"].endswith("1 x A10, 1 unhealthy")
    assert (row["memory_used_mib"], row["memory_mib"]) == (4_000, 4_000)


def node_row(name: str) -> dict[str, Any]:
    """What `subak nodes` says of a node."""
    (row,) = (each for each in subak("nodes", "-o", "json").data["nodes"] if each["name"] == name)
    assert isinstance(row, dict)
    return row


@pytest.mark.long
def test_it_is_a_plugin_of_kubectl(cluster: Live) -> None:
    assert cluster.run("kubectl", "subak", "nodes").stdout == subak("nodes").out


def test_why_tells_what_a_pod_shares_or_waits_for(cluster: Live, tmp_path: Path) -> None:
    apply(tmp_path, pod("a", 20_000), pod("b", 5_000))
    wait(cluster, "a")
    placed = subak("why", "a")
    assert (placed.code, "default/a is Running on here" in placed.out) == (0, True)
    waits = subak("why", "default/b")
    assert waits.code == 1
    assert "1 node: largest free slice 3,028 MiB, 5,000 MiB asked (CardInsufficientMemory)" in waits.out
    groups = subak("why", "b", "-o", "json").data["groups"]
    assert {each["reason"]: each["nodes"] for each in groups} == {
        "CardInsufficientMemory": ["here"],
        "NodeUnregistered": ["other"],
    }
    assert "waiting for a card: default/b" in subak("top").out


def test_why_tells_whom_a_pod_waits_for(cluster: Live, tmp_path: Path) -> None:
    rank = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "vip"}, "value": 9}
    slow: Any = pod("slow", 20_000, "trap '' TERM; while :; do sleep 0.1; done")
    slow["spec"]["terminationGracePeriodSeconds"] = 600
    vip: Any = pod("vip", 20_000)
    vip["spec"]["priorityClassName"] = "vip"
    apply(tmp_path, rank, slow)
    wait(cluster, "slow")
    apply(tmp_path, vip)
    wait(cluster, "vip", "jsonpath={.status.nominatedNodeName}=here")
    wait(cluster, "slow", "condition=DisruptionTarget")
    assert "default/vip waits on node here for 1 pod to leave: default/slow\n" in subak("why", "vip").out
    data = subak("why", "vip", "-o", "json").data
    assert (data["nominated"], data["waitsFor"]) == ("here", ["default/slow"])
    subak("delete", "pod", "slow", "--force")
    wait(cluster, "vip")


def test_why_tells_how_containers_ended(cluster: Live, tmp_path: Path) -> None:
    apply(tmp_path, pod("fails", command="exit 3"), pod("works", command="true"), pod("killed", command="kill -9 0"))
    for name, phase in (("fails", "Failed"), ("works", "Succeeded"), ("killed", "Failed")):
        wait(cluster, name, f"jsonpath={{.status.phase}}={phase}")
    assert subak("why", "fails").out.splitlines()[:2] == [
        "default/fails is Failed on here",
        "  container c ended with exit code 3",
    ]
    assert "container c ended with exit code 0\n" in subak("why", "works").out
    assert "container c ended with exit code 137 (SIGKILL)\n" in subak("why", "killed").out
    (container,) = subak("why", "fails", "-o", "json").data["containers"]
    assert (container["name"], container["state"], container["exit_code"]) == ("c", "terminated", 3)


def test_why_tells_of_a_container_that_is_started_again(cluster: Live, tmp_path: Path) -> None:
    loops = pod("loops", command="exit 5")
    assert isinstance(loops["spec"], dict)
    loops["spec"]["restartPolicy"] = "Always"
    apply(tmp_path, loops)
    wait(cluster, "loops", "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CrashLoopBackOff")
    assert re.search(
        r"container c waits \(CrashLoopBackOff\): .*; before it ended with exit code 5", subak("why", "loops").out
    )


def test_pods_of_other_schedulers_are_left_alone(cluster: Live, tmp_path: Path) -> None:
    names = ("default-scheduler", "subak", "hami-scheduler", "volcano", "koord-scheduler")
    pods = [pod(f"of-{name}", 100) for name in (*names, "other")]
    for each, name in zip(pods, (*names, "other"), strict=True):
        assert isinstance(each["spec"], dict)
        each["spec"]["schedulerName"] = name
    apply(tmp_path, *reversed(pods))
    for name in names:
        wait(cluster, f"of-{name}")
    shown = subak("why", "of-other")
    assert (shown.code, shown.out.splitlines()[0]) == (
        1,
        "default/of-other waits for its scheduler, 'other'; ours are default-scheduler, subak, hami-scheduler, "
        "volcano, koord-scheduler",
    )


def test_the_operator_s_path_is_no_part_of_a_container(cluster: Live, tmp_path: Path) -> None:
    apply(tmp_path, pod("a"))
    wait(cluster, "a")
    path = subak("exec", "a", "--", "sh", "-c", "echo $PATH").out.strip()
    assert path == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.mark.parametrize("program", ["subak", pytest.param("kubectl", marks=pytest.mark.long)])
def test_wait_speaks_as_kubectl_does(cluster: Live, tmp_path: Path, program: str) -> None:
    apply(tmp_path, pod("a"), pod("b", 20_000), pod("c", 20_000))

    def waited(*words: str) -> tuple[int, str, str]:
        if program == "subak":
            answer = subak("wait", *words)
            return answer.code, answer.out, answer.err
        done = cluster.run(program, "wait", *words, check=False)
        return done.returncode, done.stdout, done.stderr

    met = "pod/a condition met\npod/b condition met\n"
    assert waited("--for=condition=Ready", "pod/a", "pod/b", "--timeout=1m") == (0, met, "")
    assert waited("--for=condition=ready", "pods", "a", "b", "--timeout=0") == (0, met, "")
    assert waited("--for=jsonpath={.status.phase}=Running", "pod", "a") == (0, "pod/a condition met\n", "")
    assert waited("--for=jsonpath={.status.containerStatuses[0].ready}=true", "pod/a")[0] == 0
    late = "error: timed out waiting for the condition on pods/c\n"
    assert waited("--for=condition=Ready", "pod/c", "--timeout=100ms") == (1, "", late)
    assert waited("--for=condition=Ready=false", "pod/c", "--timeout=0s")[0] == 1  # nobody has said so of it
    assert waited("--for=condition=PodScheduled=False", "pod/c", "--timeout=1m")[0] == 0
    missing = 'Error from server (NotFound): pods "nobody" not found\n'
    assert waited("--for=condition=Ready", "pod/nobody") == (1, "", missing)
    assert subak("delete", "pod", "a", "--no-wait").code == 0
    assert waited("--for=delete", "pod/a", "--timeout=1m")[0] == 0
    assert subak("get", "pod", "a").code == 1
    assert waited("--for=delete", "pod/a")[0] == 0
    assert waited("--for=nonsense", "pod/b")[0] != 0


def test_wait_for_all_and_for_labels(cluster: Live, tmp_path: Path) -> None:
    apply(tmp_path, pod("a", labels={"x": "y"}), pod("b"))
    answer = subak("wait", "--for=condition=Ready", "pods", "--all", "--timeout", "1m")
    assert answer.out == "pod/a condition met\npod/b condition met\n"
    assert subak("wait", "--for=condition=Ready", "pods", "-l", "x=y").out == "pod/a condition met\n"
    assert subak("wait", "--for=condition=Ready", "pods").code == 2
    assert subak("wait", "--for=condition=Ready", "pods", "-l", "x=z").code == 2


def test_a_namespace_is_created_once(cluster: Live) -> None:
    assert subak("create", "namespace", "team").out == "namespace/team created\n"
    again = subak("create", "namespace", "team")
    assert (again.code, again.err) == (1, 'Error from server (AlreadyExists): namespaces "team" already exists\n')
    assert subak("create", "namespace", "A").code == 1
    assert subak("delete", "namespace", "team").code == 0


def test_delete_waits_until_the_pod_is_gone(cluster: Live, tmp_path: Path) -> None:
    apply(tmp_path, pod("a"))
    wait(cluster, "a")
    assert subak("delete", "-f", tmp_path / "pods.yaml").out == 'pod "a" deleted\n'
    assert subak("get", "pod", "a").code == 1


def test_a_cluster_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cluster: Live) -> None:
    text = re.sub(r"127.0.0.1:\d+", "127.0.0.1:1", cluster.kubeconfig.read_text())
    with monkeypatch.context() as patched:
        patched.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        (tmp_path / "kubeconfig").write_text(text)
        answer = subak("get", "pods")
        refused = "error: the cluster cannot be reached: 127.0.0.1:1: Connection refused; is `subak up` running?\n"
        assert (answer.code, answer.err) == (1, refused)
        patched.setenv("KUBECONFIG", str(tmp_path / "none"))
        answer = subak("nodes")
        assert (answer.code, "does not exist: correct or unset KUBECONFIG" in answer.err) == (2, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    assert "_SUBAK_COMPLETE" in subak("completion", shell).out
