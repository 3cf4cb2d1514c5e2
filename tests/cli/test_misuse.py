"""Whatever is typed and however we are connected: an answer and a documented exit code, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subak.cli import COMMANDS
from tests.support.commands import subak, write
from tests.support.fuzz import examples
from tests.support.live import PATIENCE, ROOT, Live, commands, live

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"volcano.sh/gpu-memory": 100}}}]},
}
PLACE = ("place", "-f", "examples/volcano", "--cluster", "examples/clusters/volcano.yaml")
DOCUMENTED = {0, 1, 2}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("misuse")
    hardware = write(folder / "hardware.yaml", "nodes: [{profile: volcano, name: here}]")
    with live("--hardware", hardware, "--runtime", "none") as running:
        yield running


@pytest.fixture
def connected(cluster: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commands speak to a cluster that has a pod."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    assert subak("apply", "-f", write(tmp_path / "pod.yaml", POD)).code == 0
    assert subak("wait", "--for=condition=PodScheduled", "pod/p", "--timeout", f"{PATIENCE}s").code == 0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files that are not what they should be."""
    folder = tmp_path_factory.mktemp("files")
    contents = {
        "empty": b"",
        "text": b"just a text",
        "bytes": b"\xff\xfe\x00",
        "list": b"[1, 2]",
        "odd": b"{kind: Pod, apiVersion: v1, metadata: text}",
        "names": b"{kind: Pod, apiVersion: v1, metadata: {name: 5, namespace: [a]}, spec: 7}",
        "nameless": b"{kind: Pod, apiVersion: v1}",
        "slash": b"{kind: Pod, apiVersion: v1, metadata: {name: a/b, annotations: [1]}}",
        "kindless": b"{a: b}",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    return [*(str(folder / name) for name in contents), str(folder / "folder"), str(folder / "none"), "x" * 5000]


WORDS = st.sampled_from(
    [
        *(
            "p",
            "default/p",
            "pod/p",
            "pods/p",
            "po/default/p",
            "a/b/c",
            "a/b/c/d",
            "/",
            "//",
            "/p",
            "p/",
            "pod/",
            "a%b",
        ),
        *(
            "",
            " ",
            ".",
            "..",
            "pod",
            "pods",
            "pods,nodes",
            "nodes",
            "node/here",
            "node/a/b",
            "all",
            "ns",
            ",",
            "pod,",
            "é",
        ),
        *(
            "\udcff",
            "a\udcff",
            "\n",
            "x" * 300,
            "pods.v1.",
            "pods..",
            "-",
            "--",
            "---",
            "-1",
            "0",
            "1h",
            "1h30m",
            "*",
            "?#",
        ),
        *("here", "bash", "namespace", "condition=Ready", "jsonpath={.a}=b", "delete"),
    ]
)
OPTIONS = st.sampled_from(
    [
        *(
            "-n",
            "-l",
            "-c",
            "-o",
            "-A",
            "-i",
            "-t",
            "-p",
            "--all",
            "--force",
            "--no-wait",
            "--dry-run",
            "--tail",
            "--since",
        ),
        *("--for", "--for=delete", "--for=condition=Ready", "--timeout=0", "--timeout", "--grace-period", "--context"),
        *("--kubeconfig", "--field-selector", "--ignore-not-found", "--device-config", "--cluster", "-f", "--filename"),
        *("-o=json", "-ojson", "-oyaml", "-owide", "--help", "--nonsense", "--timestamps", "--no-such=é"),
    ]
)
TEXTS = st.text(max_size=4).filter(lambda text: not text.startswith("-"))
"""No options: `-w` would not end."""

SAFE = sorted(COMMANDS.keys() - {"up", "demo", "run", "controller", "agent"})
"""Those that end by themselves: the others are tested one by one."""


@settings(
    examples(quick=30, ci=1_500),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_no_words_end_in_a_traceback(connected: None, files: list[str], data: st.DataObject) -> None:
    command = data.draw(st.sampled_from(SAFE))
    words = data.draw(st.lists(st.one_of(WORDS, WORDS, OPTIONS, st.sampled_from(files), TEXTS), max_size=6))
    if command == "logs":
        words = [word for word in words if word != "-f"]  # it would not end
    if command == "delete":  # not the node, and not everything: they are for the other examples
        words = ["--no-wait", *(word for word in words if word not in ("here", "node/here", "--all", "-A", "-l"))]
    if command == "exec":  # of what comes from a terminal or a pipe, test_exec tells
        words = [word for word in words if word != "-i"]
    if command == "wait":
        words = [*words, "--timeout=0"]
    answer = subak(command, *words)
    assert answer.code in DOCUMENTED, (command, words)
    assert "Traceback" not in answer.out + answer.err
    if answer.code:
        assert answer.err, (command, words)


@pytest.mark.parametrize(
    "words",
    [
        ("logs", "default/p"), ("logs", "pod/p"), ("exec", "default/p", "--", "ls"), ("exec", "pods/p", "--", "ls"),
        ("why", "a/b/c"), ("why", ""), ("why", "pods/p"), ("why", "pod/default/p"), ("get", "pod/a/b"),
        ("get", "pod", "default/p"),
        ("describe", "pod", "default/p"), ("delete", "pod", "a%b"), ("delete", "pods", "-l", ""),
        ("get", "pods", "-n", "a/b"),
        ("get", "pods", "-l", "\udcff"), ("delete", "pods", "-l", "\udcff"), ("exec", "\udcff", "--", "ls"),
        ("exec", "", "--", "ls"),
        ("wait", "--for=delete", "pod/a/b/c"), ("create", "namespace", "a/b"), ("logs", "p", "--since", "1y"),
    ],
)  # fmt: skip
def test_words_that_once_ended_in_a_traceback(connected: None, words: Sequence[str]) -> None:
    answer = subak(*words)
    assert answer.code in DOCUMENTED
    assert answer.code == 0 or len(answer.err.strip().splitlines()) in (1, 4), answer.err  # click tells the usage too


@pytest.mark.parametrize("name", ["p", "default/p", "pod/p", "pods/p", "po/p", "pod/default/p"])
def test_a_pod_is_known_by_every_name_that_we_print(connected: None, name: str) -> None:
    assert subak("why", name).code == 0
    assert subak("get", "pod", name, "-o", "name").out == "pod/p\n"
    assert subak("describe", "pod", name).code == 0
    assert subak("wait", "--for=condition=PodScheduled", "pod", name).out == "pod/p condition met\n"
    for command in (["logs"], ["exec", "--", "ls"]):  # there are no containers here, and it says so in the same words
        assert subak(command[0], name, *command[1:]) == subak(command[0], "p", *command[1:])


def test_an_empty_selector_chooses_nothing(connected: None) -> None:
    assert subak("delete", "pods", "-l", "").code == 2
    assert subak("get", "pod", "p").code == 0


# How we are connected.


def run(redirection: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in a shell that redirects its streams."""
    line = f'exec "$0" -m subak.cli "$@" {redirection}'
    return subprocess.run(
        ["bash", "-c", line, sys.executable, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=commands({"KUBECONFIG": "/nowhere"}),
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    "words",
    [
        PLACE,
        *(
            pytest.param(words, marks=pytest.mark.long)
            for words in (("--help",), ("place", "--help"), ("completion", "bash"), (*PLACE, "-o", "json"))
        ),
    ],
)
def test_an_output_that_is_full_is_told_in_a_line(words: tuple[str, ...]) -> None:
    done = run(">/dev/full", *words)
    assert (done.returncode, done.stderr) == (1, "error: the output cannot be used: No space left on device\n")


@pytest.mark.parametrize("redirection", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-", "2>/dev/full"])
@pytest.mark.parametrize(
    "words", [("no-such-command",), *(pytest.param(some, marks=pytest.mark.long) for some in (PLACE, ("nodes",)))]
)
def test_closed_streams_are_as_good_as_empty_ones(redirection: str, words: tuple[str, ...]) -> None:
    done = run(redirection, *words)
    assert done.returncode == (
        0 if words == PLACE else 1 if redirection == "2>/dev/full" and words != ("nodes",) else 2
    )
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize(("redirection", "problem"), [("<&-", "it is empty"), ("0>/dev/null", "cannot be read")])
def test_an_input_that_is_not_there_is_bad_input(redirection: str, problem: str) -> None:
    done = run(redirection, "place", "-f", "-", "--cluster", "examples/clusters/volcano.yaml")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith(f"error: -: {problem}")


@pytest.mark.long
def test_a_reader_that_has_gone_needs_no_word() -> None:
    done = run("| true", *PLACE)
    assert done.stderr == ""


GO_ON = (
    ("up", "--hardware", "."), ("run", "--memory", "x", "--", "true"), ("run", "--hardware", ".", "--", ""),
    ("demo", "x"),
)  # fmt: skip
GO_ON_TOO = (
    ("up", "--hardware", "none"), ("up", "--state", "/dev/null"), ("up", "--port", "x"), ("up", "--device-config", "."),
    ("up", "--device-config", "none"), ("up", "--kubeconfig", "/proc/x/y"), ("run", "--timeout", "1y", "--", "true"),
    ("run", "--hardware", "none", "--", "true"), ("run",), ("exec",), ("exec", "p"),
    ("controller", "--kubeconfig", "none"), ("controller", "--extender", "1"),
    ("controller", "--webhook-url", "http://a", "--kubeconfig", "."),
    ("agent", "--node-name", "A B"), ("agent", "--listen", "x"), ("agent", "--kubeconfig", "none"),
    ("controller", "--listen", "x"), ("controller", "--scheduler-name", ""), ("extender", "--url", "nonsense"),
    ("agent", "--simulate", "."),
)  # fmt: skip


@pytest.mark.parametrize("words", [*GO_ON, *(pytest.param(words, marks=pytest.mark.long) for words in GO_ON_TOO)])
def test_bad_input_of_commands_that_go_on(words: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "subak.cli", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=commands({"HOME": str(tmp_path)}),
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
