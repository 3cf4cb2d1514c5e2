"""A real node: kubelet, containerd and runc, in namespaces of their own, on a `Cluster`.

with RealNode(cluster) as node:
    node.restart("kubelet")
    print(node.run(["ctr", "-n", "k8s.io", "tasks", "ls"]).stdout)

Everything on the node lives in one mount and one PID namespace, whose first process is `programs/pause.c`.  There the
folders that a node's programs share (/etc, /run, /usr/local, /var) are the node's own, so several nodes can stand
beside each other, and nothing is left on the machine: when the first process is killed, the kernel ends all others and
takes the mounts away.  Files in /tmp are those of the tests, and so is the network; a node has its own address.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from tests.e2e import PARTS, cgroups, debian, images, namespace, settings
from tests.e2e.cluster import ADDRESS, Cluster, Failed
from tests.e2e.controller import kubectl
from tests.support.processes import children

PATIENCE = 60.0
PREFIX = "subak-node-"
STARTS = 5
"""How often a part is started that ends by itself, as a service manager does."""
TUNED = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""What kubelet sets for the whole machine.  On the node they are files of its own."""

_OWN = ("etc", "usr/local", "var")
"""The node's own copies of these folders; /run begins empty."""
_SHARED = ("/var/lib/kubelet", "/run/containerd", "/run/netns")
"""Folders whose mounts the programs of the node see, whoever makes them."""
_TURNS = "/tmp/vgpulock"
_PASSED = ("PATH", "HOME", "LANG", "TMPDIR")


def missing() -> str:
    """Why there can be no real node here; empty if there can."""
    package = debian.found(debian.NODE)
    if isinstance(package, str):
        return package
    if Path("/proc/self/uid_map").read_text().split() != ["0", "0", str(2**32 - 1)]:
        return "a real node needs root"
    if not cgroups.hierarchies():
        return f"a real node is set up for cgroup v1, and {cgroups.ROOT} is not that"
    return ""


class Ended(Failed):
    """A part ended by itself."""


class RealNode:
    """A node, to be used as a context manager.  `number` tells several of them apart."""

    def __init__(self, cluster: Cluster, number: int = 0, nri: bool = True) -> None:
        self.cluster = cluster
        self.name = f"real-{number}"
        self.address = f"10.99.1.{number + 1}"
        self._number = number
        self._nri = nri
        self._programs = Path(os.environ[PARTS])
        self._packages = Path(debian.found(debian.NODE))
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Start everything, and wait until the node is ready."""
        self._cleanup = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            undo.callback(self._cleanup.close)
            _sweep()
            self.directory = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX)))
            self.cgroup = self.directory.name
            self._cleanup.enter_context(_held(self.directory))
            self._prepare()
            self._cleanup.callback(cgroups.remove, self.cgroup)
            self._begin()
            self._cleanup.callback(self._end)
            self._cleanup.callback(self._leave)
            self._join()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, what: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete the node and its pods, and kill everything.  After a failure the ends of all logs are printed."""
        if kind is not None:
            print(*(self.story(each) for each in self.parts), sep="\n\n")
        self._cleanup.close()

    @property
    def parts(self) -> list[str]:
        """Those whose logs there are."""
        return sorted(path.stem for path in (self.directory / "log").glob("*.log"))

    def start(self, part: str) -> None:
        """Start `containerd` or `kubelet`, and wait until it answers."""
        commands = {
            "containerd": [str(self._programs / "containerd"), f"--config={self.directory / 'containerd.toml'}"],
            "kubelet": [
                str(self._programs / "kubelet"),
                f"--config={self.directory / 'kubelet.yaml'}",
                f"--kubeconfig={self.directory / 'kubeconfig'}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
            ],
        }
        answers = {"containerd": self._containerd_answers, "kubelet": self._kubelet_answers}
        for again in range(STARTS, 0, -1):  # kubelet ends if containerd is not ready for it, and is started anew
            self._running[part] = self.spawn(commands[part], part)
            try:
                self.until(answers[part], f"{part} answers", part)
                return
            except Ended:
                if again == 1:
                    raise

    def stop(self, part: str) -> None:
        """Ask a part to end, and wait until it has.  Containers go on."""
        self._signal(part, signal.SIGTERM)

    def kill(self, part: str) -> None:
        """Kill a part.  Containers go on."""
        self._signal(part, signal.SIGKILL)

    def restart(self, part: str) -> None:
        """Kill a part and start it again, with its data."""
        self.kill(part)
        self.start(part)

    def spawn(
        self, command: Sequence[str], name: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program on the node and leave it running; `log(name)` is what it prints.

        End it with `send`: the process that is given here only waits for it.
        """
        with self.log(name).open("ab") as log:
            return subprocess.Popen(
                self._inside(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(environment),
            )

    def run(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, seconds: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        """Run a program on the node until it ends."""
        return subprocess.run(
            self._inside(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._environment(environment),
            timeout=seconds,
        )

    def ctr(self, *arguments: str) -> str:
        """What containerd's own command prints about Kubernetes' containers."""
        ran = self.run([str(self._programs / "ctr"), "--namespace=k8s.io", *arguments])
        assert ran.returncode == 0, f"ctr {' '.join(arguments)}: {ran.stderr}"
        return ran.stdout

    def path(self, path: str) -> Path:
        """Where a file of the node can be found from outside."""
        return Path(f"/proc/{self._first}/root") / path.lstrip("/")

    def log(self, name: str) -> Path:
        """What a part has printed so far."""
        return self.directory / "log" / f"{name}.log"

    def story(self, name: str, lines: int = 30) -> str:
        """The last lines of a part's log, for messages."""
        text = self.log(name).read_text(errors="replace").splitlines()[-lines:]
        return "\n".join([f"The log of {name} on {self.name} ends with:", *text])

    def until(self, condition: Callable[[], bool], what: str, part: str = "", seconds: float = PATIENCE) -> None:
        """Wait until something is true, or fail with what was waited for; also if the part ends meanwhile."""
        deadline = time.monotonic() + seconds
        while not condition():
            code = self._running[part].poll() if part else None
            if code is not None:
                raise Ended(f"{part} on {self.name} ended with {code}.\n{self.story(part)}")
            if time.monotonic() > deadline:
                stories = "\n".join(self.story(each) for each in ([part] if part else self._running))
                raise Failed(f"{self.name}: not within {seconds:.0f} s: {what}.\n{stories}")
            time.sleep(0.05)

    def _prepare(self) -> None:
        """Write all settings."""
        for folder in ("log", "data", "cni", "images", "static"):
            (self.directory / folder).mkdir()
        namespace.add_address(f"lo:{self._number + 2}", self.address)
        who = self.cluster.identities
        user = f"system:node:{self.name}"
        who.client(self.name, user, "system:nodes")
        who.server(f"{self.name}-serving", [self.address])
        shutil.copy(who.kubeconfig(self.name, ADDRESS), self.directory / "kubeconfig")
        given = settings.Node(self.directory, self.address, self._number, self.cgroup, self._packages, self._nri)
        (self.directory / "containerd.toml").write_text(settings.containerd(given))
        (self.directory / "cni" / "10-bridge.conflist").write_text(settings.network(given))
        (self.directory / "kubelet.yaml").write_text(settings.kubelet(given, who, f"{self.name}-serving"))
        cgroups.make(self.cgroup)

    def _begin(self) -> None:
        """Start the node's first process, in the node's namespaces."""
        pause = images.compiled("pause", self.directory, "-static")
        script = "set -e\n" + "\n".join(self._mounts()) + f"\ntouch {self.directory}/begun\nexec {pause}\n"
        # setpriv: if this process is killed, the kernel ends the node too.  It does so already when the thread ends
        # that started it, so that one lives as long as the node.
        starter = self._cleanup.enter_context(ThreadPoolExecutor(max_workers=1))
        command = ["setpriv", "--pdeathsig", "KILL", "--", "unshare", "--mount", "--pid", "--fork", "--kill-child"]
        command += ["--propagation", "private", "--mount-proc", "sh", "-c", script]
        with self.log("first").open("ab") as log:
            self._holder = starter.submit(
                subprocess.Popen, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            ).result()
        self._running["first"] = self._holder
        self.until((self.directory / "begun").exists, "the node's folders are mounted", "first")
        self._first = _child(self._holder.pid)

    def _mounts(self) -> list[str]:
        """The commands that give the node folders of its own."""
        data = self.directory / "data"
        made = ["mount -t tmpfs -o mode=755 tmpfs /run"]
        for folder in _OWN:
            upper, work = (data / f"{folder.replace('/', '-')}.{kind}" for kind in ("upper", "work"))
            layers = f"lowerdir=/{folder},upperdir={upper},workdir={work}"
            made += [f"mkdir {upper} {work}", f"mount -t overlay -o {layers} overlay /{folder}"]
        for folder in (*_SHARED, _TURNS):
            source = data / folder.replace("/", "-").lstrip("-")
            made += [f"mkdir -p {folder}", f"mkdir -m 1777 {source}", f"mount --bind {source} {folder}"]
        made += [f"mount --make-rshared {folder}" for folder in _SHARED]
        made.append("mkdir -p /etc/cdi /run/cdi /run/nri /var/log/pods /var/log/containers")
        for name in TUNED:
            copy = data / name.replace("/", "-")
            made += [f"cat /proc/sys/{name} > {copy}", f"mount --bind {copy} /proc/sys/{name}"]
        return made

    def _join(self) -> None:
        """Start the parts, bring the images, and wait until the node is ready."""
        self.start("containerd")
        for archive in images.write(self.directory / "images", self._packages / "bin" / "busybox"):
            self.ctr("images", "import", str(archive))
        if "nodes" not in self.cluster.parts:
            self.cluster.start("nodes")
            self._cleanup.callback(self.cluster.stop, "nodes")
        self.start("kubelet")
        self.until(self.ready, "the node is ready and may be used", "kubelet")

    def ready(self) -> bool:
        """Whether the node's object says that it is ready, and pods may be placed on it."""
        form = "jsonpath={.status.conditions[?(@.type=='Ready')].status} {.spec.taints}"
        return kubectl(self.cluster, "get", "node", self.name, "--ignore-not-found", "-o", form) == "True "

    def _leave(self) -> None:
        """Take the node's objects away: whoever else uses the cluster must not see a dead node."""
        of_node = f"--field-selector=spec.nodeName={self.name}"
        kubectl(self.cluster, "delete", "pods", "-A", of_node, "--force", "--grace-period=0", "--wait=false")
        kubectl(self.cluster, "delete", "node", self.name, "--ignore-not-found")

    def _end(self) -> None:
        os.kill(self._first, signal.SIGKILL)
        for each in self._running.values():
            each.wait()

    def _inside(self, command: Sequence[str]) -> list[str]:
        return ["nsenter", f"--target={self._first}", "--mount", "--pid", "--", *command]

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        usual = {name: os.environ[name] for name in _PASSED if name in os.environ}
        usual["PATH"] = f"{self._programs}:{usual['PATH']}"
        return {**usual, **(more or {})}

    def send(self, waiting: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to a program that `spawn` started."""
        os.kill(_child(waiting.pid), number)
        if number != signal.SIGSTOP:  # or else nsenter, which stops with its child, would not see what became of it
            waiting.send_signal(signal.SIGCONT)

    def _signal(self, part: str, number: signal.Signals) -> None:
        self.send(self._running[part], number)
        self._running.pop(part).wait(PATIENCE)

    def _containerd_answers(self) -> bool:
        return self.run([str(self._programs / "ctr"), "version"]).returncode == 0

    def _kubelet_answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}:10248/healthz", timeout=5) as answer:
                return int(answer.status) == 200
        except (OSError, urllib.error.HTTPError):
            return False


def _held(directory: Path) -> BinaryIO:
    """The lock of a node's folder; it is free when the tests that made it have ended.  Raises BlockingIOError."""
    lock = (directory / "lock").open("ab")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _sweep() -> None:
    """Remove what is left of nodes whose tests were killed; the kernel has ended their processes."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/lock"):
        with contextlib.suppress(OSError), _held(lock.parent):
            cgroups.remove(lock.parent.name)
            shutil.rmtree(lock.parent)


def _child(waiting: int) -> int:
    """The one child of a process that waits for it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := children(waiting):
            return found[0]
        time.sleep(0.01)
    raise Failed(f"process {waiting} started nothing")
