"""`subak up`: what it promises to users, seen from outside."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from tests.support.live import PATIENCE, ROOT, Live, commands, live
from tests.support.nobody import as_nobody, possible

EXAMPLES = ROOT / "examples"
UNIQUE = "86399"
"""Seconds that no other process on the machine sleeps."""


def until(check: Callable[[], bool], what: str) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline, f"it never happened: {what}"
        time.sleep(0.02)


def sleepers(seconds: str) -> list[int]:
    """Processes of the machine that sleep so long."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", seconds.encode()]:
            found.append(int(path.name))
    return found


def sleeper(name: str, seconds: str, **limits: object) -> str:
    container = {"name": "c", "image": "busybox", "command": ["sleep", seconds], "resources": {"limits": limits}}
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
    )


def ready(cluster: Live, *pods: str) -> None:
    cluster.run("kubectl", "wait", "--for=condition=Ready", *(f"pod/{name}" for name in pods), "--timeout=60s")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_it_greets_and_leaves_nothing_behind(number: signal.Signals) -> None:
    seconds = f"{UNIQUE}.{os.getpid()}{number:d}"
    with live() as cluster:
        assert "8 nodes" in cluster.greeting
        assert f"export KUBECONFIG={cluster.kubeconfig}" in cluster.greeting
        assert stat.S_IMODE(cluster.kubeconfig.stat().st_mode) == 0o600
        cluster.run("kubectl", "apply", "-f", "-", stdin=sleeper("a", seconds))
        ready(cluster, "a")
        assert len(sleepers(seconds)) == 1
        assert cluster.stop(number) == 0
        assert sleepers(seconds) == []
        assert not cluster.kubeconfig.exists()


def test_containers_die_with_it_even_if_it_is_killed() -> None:
    seconds = f"{UNIQUE}.{os.getpid()}9"
    with live() as cluster:
        cluster.run("kubectl", "apply", "-f", "-", stdin=sleeper("a", seconds))
        ready(cluster, "a")
        assert sleepers(seconds)
        cluster.stop(signal.SIGKILL)
        until(lambda: not sleepers(seconds), "its containers end")


def test_three_systems_share_a_card_and_who_waits_is_served_when_one_leaves() -> None:
    with live() as cluster:
        cluster.run("kubectl", "apply", "-f", EXAMPLES / "shared")
        ready(cluster, "hami", "volcano", "koordinator")
        top = json.loads(cluster.subak("top", "a10", "-o", "json").stdout)
        (card,) = top["nodes"][0]["cards"]
        assert {each["pod"] for each in card["tenants"]} == {"default/hami", "default/volcano", "default/koordinator"}
        assert card["memory_used_mib"] == 8_000 + 6_144 + 5_757
        until(lambda: "3,127 MiB, 4,096 MiB asked" in reason(cluster, "too-big"), "the fourth is told why it waits")
        cluster.run("kubectl", "delete", "pod", "volcano")
        ready(cluster, "too-big")


def reason(cluster: Live, pod: str) -> str:
    path = '{.status.conditions[?(@.type=="PodScheduled")].message}'
    return cluster.run("kubectl", "get", "pod", pod, "-o", f"jsonpath={path}").stdout


@pytest.mark.long
def test_kubectl_shows_what_volcanos_document_shows() -> None:
    with live() as cluster:
        cluster.run("kubectl", "apply", "-f", EXAMPLES / "volcano")
        ready(cluster, "gpu-pod1", "gpu-pod2")
        for pod in ("gpu-pod1", "gpu-pod2"):
            env = cluster.run("kubectl", "exec", pod, "--", "env").stdout.splitlines()
            printed = {"VOLCANO_GPU_MEMORY_TOTAL=11178", "VOLCANO_GPU_ALLOCATED=1024", "NVIDIA_VISIBLE_DEVICES=0"}
            assert printed <= set(env)
        annotations = json.loads(cluster.run("kubectl", "get", "pod", "gpu-pod1", "-o", "json").stdout)["metadata"]
        assert annotations["annotations"]["volcano.sh/gpu-index"] == "0"
        node = yaml.safe_load(cluster.run("kubectl", "get", "node", "gtx1080ti", "-o", "yaml").stdout)
        for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
            assert (amounts["volcano.sh/gpu-memory"], amounts["volcano.sh/gpu-number"]) == ("89424", "8")


@pytest.mark.long
def test_an_image_without_a_command_says_what_to_do_or_waits_with_stand_in() -> None:
    text = re.sub(r"command:\n.*\n.*\n +", "", sleeper("a", "1"))
    assert "command" not in text
    with live() as cluster:
        cluster.run("kubectl", "apply", "-f", "-", stdin=text)
        until(lambda: "command" in waiting(cluster, "a"), "the reason names the field")
        assert "--stand-in" in waiting(cluster, "a")
    with live("--stand-in") as cluster:
        cluster.run("kubectl", "apply", "-f", "-", stdin=text)
        ready(cluster, "a")


def waiting(cluster: Live, pod: str) -> str:
    path = "{.status.containerStatuses[0].state.waiting.message}"
    return cluster.run("kubectl", "get", "pod", pod, "-o", f"jsonpath={path}").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["--hardware", "no-such-file"],
            "error: no-such-file: cannot be read: No such file or directory",
            marks=pytest.mark.long,
        ),
        (["--hardware", "README.md"], "error: README.md"),
        (["--state", "/proc/nowhere"], "error: /proc/nowhere: cannot keep state here"),
        pytest.param(
            ["--kubeconfig", "/proc/nowhere/config"],
            "error: /proc/nowhere: No such file or directory: name a kubeconfig",
            marks=pytest.mark.long,
        ),
        (["--kubeconfig", "README.md"], "error: README.md: it is there already, and not from `subak up`"),
        pytest.param(["--runtime", "docker"], "Invalid value for '--runtime'", marks=pytest.mark.long),
    ],
)
def test_bad_input_is_told_in_a_sentence(arguments: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "subak.cli", "up", *arguments],
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
        env=commands({}),
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_who_has_no_home_is_told_what_to_do() -> None:
    stranger = [*as_nobody(sys.executable, "-m", "subak.cli", "up", "--runtime", "none")]
    if os.geteuid() != 0 or not possible():
        pytest.skip("only root can be somebody whom the machine does not know")
    command = [word.replace("--reuid=65534", "--reuid=54321") for word in stranger]
    env = {name: value for name, value in commands({}).items() if name not in ("HOME", "XDG_RUNTIME_DIR")}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (
        2,
        "error: this user has no home directory: set HOME, or name a kubeconfig (--kubeconfig)\n",
    )


def test_a_state_directory_belongs_to_one_cluster(tmp_path: Path) -> None:
    with live("--state", tmp_path / "state"):
        done = subprocess.run(
            [sys.executable, "-m", "subak.cli", "up", "--state", str(tmp_path / "state")],
            capture_output=True,
            check=False,
            text=True,
            env=commands({}),
            timeout=PATIENCE,
        )
        assert (done.returncode, "in use by another process" in done.stderr) == (2, True)


@pytest.mark.long
def test_two_clusters_of_a_user_are_both_reached_and_neither_takes_the_others_kubeconfig(tmp_path: Path) -> None:
    few = tmp_path / "few.yaml"
    few.write_text("nodes: [{profile: moore-threads, name: lab}]")
    default = tmp_path / "subak" / "kubeconfig"
    with live("--runtime", "none", runtime=tmp_path) as first:
        with live("--runtime", "none", "--hardware", few, runtime=tmp_path) as second:
            assert (first.kubeconfig, second.kubeconfig) == (default, default.with_name("kubeconfig-2"))
            assert second.subak("get", "nodes", "-o", "name").stdout == "node/lab\n"
            assert len(first.subak("get", "nodes", "-o", "name").stdout.splitlines()) == 8
        assert [path.name for path in default.parent.iterdir()] == ["kubeconfig"]
        assert len(first.subak("get", "nodes", "-o", "name").stdout.splitlines()) == 8
        first.stop(signal.SIGKILL)
    with live("--runtime", "none", "--hardware", few, runtime=tmp_path) as third:
        assert third.kubeconfig == default
        assert third.subak("get", "nodes", "-o", "name").stdout == "node/lab\n"
    assert list(default.parent.iterdir()) == []


KEEPER = """
apiVersion: v1
kind: Pod
metadata: {name: keeper}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: keep, emptyDir: {}}]
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "cat /keep/word || echo first; echo hello > /keep/word; sleep infinity"]
    volumeMounts: [{name: keep, mountPath: /keep}]
"""


@pytest.mark.long
def test_volumes_and_logs_are_part_of_the_state(tmp_path: Path) -> None:
    with live("--state", tmp_path / "state") as cluster:
        cluster.run("subak", "apply", "-f", "-", stdin=KEEPER)
        cluster.run("kubectl", "wait", "--for=condition=Ready", "pod/keeper", f"--timeout={PATIENCE:.0f}s")
        cluster.stop(signal.SIGKILL)
    with live("--state", tmp_path / "state") as cluster:
        again = "jsonpath={.status.containerStatuses[0].restartCount}=1"
        cluster.run("kubectl", "wait", f"--for={again}", "pod/keeper", f"--timeout={PATIENCE:.0f}s")
        cluster.run("kubectl", "wait", "--for=condition=Ready", "pod/keeper", f"--timeout={PATIENCE:.0f}s")
        assert cluster.subak("logs", "keeper", "--previous").stdout.splitlines()[-1] == "first"
        assert cluster.subak("logs", "keeper").stdout == "hello\n"
        cluster.subak("delete", "pod", "keeper")
    left = [each for kind in ("pods", "logs") for each in (tmp_path / "state" / "machine" / kind).iterdir()]
    assert left == []


@pytest.mark.long
def test_pods_and_volumes_outlive_a_start_without_their_hardware(tmp_path: Path) -> None:
    state, lab = ("--state", tmp_path / "state"), tmp_path / "lab.yaml"
    lab.write_text("nodes: [{profile: moore-threads, name: lab}]")
    with live(*state, "--hardware", lab) as cluster:
        cluster.run("subak", "apply", "-f", "-", stdin=KEEPER)
        ready(cluster, "keeper")
    with live(*state) as cluster:
        assert cluster.run("kubectl", "get", "node", "lab").stdout.splitlines()[1].split()[:2] == ["lab", "NotReady"]
        assert cluster.run("kubectl", "get", "pod", "keeper", "-o", "name").stdout == "pod/keeper\n"
    with live(*state, "--hardware", lab) as cluster:
        again = "jsonpath={.status.containerStatuses[0].restartCount}=1"
        cluster.run("kubectl", "wait", f"--for={again}", "pod/keeper", f"--timeout={PATIENCE:.0f}s")
        ready(cluster, "keeper")
        assert cluster.subak("logs", "keeper").stdout == "hello\n"


DEMO = [sys.executable, "-m", "subak.cli", "demo"]


def demo(command: Sequence[str]) -> str:
    """The output of the demo."""
    done = subprocess.run(
        command, capture_output=True, check=False, text=True, cwd=ROOT, env=commands({}), timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def own_files() -> dict[str, tuple[int, int]]:
    """Files of the machine that the documents' commands would change if they could."""
    places = [Path.home(), Path("/usr/local"), *Path("/usr/local").iterdir()]
    found = [path for place in places if place.is_dir() for path in place.iterdir() if path.exists()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found if path.name != ".cache"}


@pytest.mark.long
def test_the_demo_changes_nothing_on_the_machine() -> None:
    before = own_files()
    demo(DEMO)
    assert own_files() == before


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="the tests run as an ordinary user already")
@pytest.mark.skipif(not possible(), reason="util-linux's setpriv and unshare are not installed")
def test_the_demo_needs_no_root() -> None:
    assert re.search(r"poddemo +mr-v100 0 +16,384/32,768 MiB", demo(as_nobody(*DEMO)))
