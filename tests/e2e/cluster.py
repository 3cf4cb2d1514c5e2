"""A real control plane: etcd, kube-apiserver, kube-controller-manager, in the network namespace of this process.

Parts are started in order, and can be stopped and started again one by one.  Nothing is kept: at the end every part is
killed by its id, and its data removed.  Were this process killed, the kernel would end the parts with it.
"""

from __future__ import annotations

import contextlib
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from tests.e2e import namespace
from tests.e2e.identities import MASTERS, TOKEN, USER, Identities

PORT = 6443
ADDRESS = f"https://{namespace.ADDRESS}:{PORT}"
ETCD, _ETCD_PEERS = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
SCHEDULER = "https://127.0.0.1:10259/readyz"
SERVER_NAMES = ["127.0.0.1", "10.96.0.1", namespace.ADDRESS]
_PATIENCE = 60.0

CONTROLLERS = (
    "serviceaccount-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "resourcequota-controller",
)
"""Those whose work the embedded API server does itself.  More of them would change objects while tests look on."""
WORKLOADS = (
    "deployment-controller",
    "replicaset-controller",
    "daemonset-controller",
    "job-controller",
    "ttl-after-finished-controller",
)
"""Those of a second controller manager, which runs while tests look at what it does: `start("workloads")`."""
VOLUMES = ("persistentvolume-binder-controller", "ephemeral-volume-controller")
"""Those that bind claims, in a manager of their own: `start("volumes")`."""
NODES = ("node-lifecycle-controller", "root-ca-certificate-publisher-controller")
"""Those that real nodes and their pods need, in a manager of their own: `start("nodes")`.  They taint nodes that nobody
keeps alive, as most nodes of tests are."""
MANAGERS = {"workloads": WORKLOADS, "volumes": VOLUMES, "nodes": NODES}


class Failed(Exception):
    """A part did not come up, or ended by itself; the message holds the end of its log."""


class Cluster:
    """A control plane, to be used as a context manager."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Start everything."""
        if not namespace.inside():
            raise Failed("A cluster is started inside a namespace of its own only: use `python -m tests.e2e`.")
        self._cleanup = contextlib.ExitStack()
        self.directory = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="subak-e2e-")))
        self._starter = self._cleanup.enter_context(ThreadPoolExecutor(max_workers=1))
        self._cleanup.callback(self._end)
        with contextlib.ExitStack() as undo:
            undo.callback(self._cleanup.close)
            self._prepare()
            for name in ("etcd", "kube-apiserver", "kube-controller-manager"):
                self.start(name)
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, what: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill everything."""
        self._cleanup.close()

    @property
    def parts(self) -> list[str]:
        """Those that are running."""
        return list(self._running)

    @property
    def certificate(self) -> Path:
        """The authority that a client trusts."""
        return self._identities.certificate("ca")

    @property
    def identities(self) -> Identities:
        """Who is who; what they sign is trusted here."""
        return self._identities

    def pid(self, name: str) -> int:
        """The id of the process of a part that is running."""
        return self._running[name].pid

    def start(self, name: str, *more: str) -> None:
        """Start a part, with more arguments if need be, and wait until it does its work."""
        (self.directory / "log").mkdir(exist_ok=True)
        with self.log(name).open("ab") as log:
            program = "kube-controller-manager" if name in MANAGERS else name
            command = [str(self._programs / program), *self._arguments()[name], *more]
            # setpriv: if this process is killed, the kernel ends the part too.  It does so already when the thread ends
            # that started the part, so all are started by one that lives as long as the cluster.
            guarded = ["setpriv", "--pdeathsig", "KILL", "--", *command]
            self._running[name] = self._starter.submit(_started, guarded, log).result()
        self._wait(name)

    def stop(self, name: str) -> None:
        """Kill a part: an API server that is asked politely waits for a minute when etcd is gone."""
        running = self._running.pop(name)
        running.kill()
        running.wait()

    def restart(self, name: str) -> None:
        """Kill a part and start it again, with its data."""
        self.stop(name)
        self.start(name)

    def replace_identity(self, other: Identities | None = None, *tokens: str) -> None:
        """Kill the API server and start it with a certificate of another authority (or its own) and other tokens.

        The tests trust both authorities, and their own token stays valid.
        """
        self.stop("kube-apiserver")
        mine, other = self._identities, other or self._identities
        other.server("kube-apiserver", SERVER_NAMES)
        if other is not mine:
            for old, new in ((mine.certificate, other.certificate), (mine.key, other.key)):
                old("kube-apiserver").write_bytes(new("kube-apiserver").read_bytes())
            with mine.certificate("ca").open("ab") as bundle:
                bundle.write(other.certificate("ca").read_bytes())
        mine.know_tokens(TOKEN, *tokens)
        self.start("kube-apiserver")

    def log(self, name: str) -> Path:
        """What a part has printed so far."""
        return self.directory / "log" / f"{name}.log"

    def story(self, name: str, lines: int = 30) -> str:
        """The last lines of a part's log, for messages."""
        text = self.log(name).read_text(errors="replace").splitlines()[-lines:]
        return "\n".join([f"The log of {name} ends with:", *text])

    def _end(self) -> None:
        for name in list(self._running)[::-1]:
            self.stop(name)

    def _prepare(self) -> None:
        self._identities = Identities(self.directory / "identities")
        self._identities.server("kube-apiserver", SERVER_NAMES)
        self._identities.client("kube-controller-manager", "system:kube-controller-manager", MASTERS)
        self._identities.client(USER, USER, MASTERS)
        self._identities.client("to-kubelet", "kube-apiserver", MASTERS)
        self.kubeconfig = self._identities.kubeconfig(USER, ADDRESS)

    def _arguments(self) -> dict[str, list[str]]:
        who = self._identities
        return {
            "etcd": [
                f"--data-dir={self.directory / 'etcd'}",
                "--unsafe-no-fsync",
                f"--listen-client-urls={ETCD}",
                f"--advertise-client-urls={ETCD}",
                f"--listen-peer-urls={_ETCD_PEERS}",
                f"--initial-advertise-peer-urls={_ETCD_PEERS}",
                f"--initial-cluster=default={_ETCD_PEERS}",
            ],
            "kube-apiserver": [
                f"--etcd-servers={ETCD}",
                f"--bind-address={namespace.ADDRESS}",
                f"--advertise-address={namespace.ADDRESS}",
                f"--secure-port={PORT}",
                "--endpoint-reconciler-type=none",
                f"--tls-cert-file={who.certificate('kube-apiserver')}",
                f"--tls-private-key-file={who.key('kube-apiserver')}",
                f"--client-ca-file={who.certificate('ca')}",
                f"--token-auth-file={who.directory / 'tokens.csv'}",
                "--anonymous-auth=false",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--allow-privileged=true",
                f"--service-account-key-file={who.key('service-accounts')}",
                f"--service-account-signing-key-file={who.key('service-accounts')}",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.96.0.0/16",
                f"--kubelet-client-certificate={who.certificate('to-kubelet')}",
                f"--kubelet-client-key={who.key('to-kubelet')}",
                "--kubelet-preferred-address-types=InternalIP",
            ],
            "kube-controller-manager": [
                *self._manager(CONTROLLERS),
                f"--service-account-private-key-file={who.key('service-accounts')}",
            ],
            "kube-scheduler": [  # the rest is in the `--config` that a test gives
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                f"--tls-cert-file={who.certificate('kube-apiserver')}",
                f"--tls-private-key-file={who.key('kube-apiserver')}",
            ],
            **{name: [*self._manager(those), "--secure-port=0"] for name, those in MANAGERS.items()},
        }

    def _manager(self, controllers: tuple[str, ...]) -> list[str]:
        return [
            f"--kubeconfig={self._identities.kubeconfig('kube-controller-manager', ADDRESS)}",
            "--leader-elect=false",
            f"--controllers={','.join(controllers)}",
            "--kube-api-qps=1000",  # the default of 20 makes tests wait
            "--kube-api-burst=1000",
            f"--root-ca-file={self._identities.certificate('ca')}",
        ]

    def _wait(self, name: str) -> None:
        """Until a part answers; the controllers, until there is a default service account."""
        address = {
            "etcd": f"{ETCD}/health",
            "kube-apiserver": f"{ADDRESS}/readyz",
            "kube-controller-manager": f"{ADDRESS}/api/v1/namespaces/default/serviceaccounts/default",
            "kube-scheduler": SCHEDULER,
            **dict.fromkeys(MANAGERS, f"{ADDRESS}/readyz"),
        }[name]
        deadline = time.monotonic() + _PATIENCE
        while not self._answers(address):
            code = self._running[name].poll()
            if code is not None:
                raise Failed(f"{name} ended with {code}.\n{self.story(name)}")
            if time.monotonic() > deadline:
                raise Failed(f"{name} did not come up within {_PATIENCE:.0f} s.\n{self.story(name)}")
            time.sleep(0.05)

    def _answers(self, address: str) -> bool:
        trust = ssl.create_default_context(cafile=self.certificate)
        request = urllib.request.Request(address, headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            with urllib.request.urlopen(request, context=trust, timeout=5) as answer:
                return int(answer.status) == 200
        except (OSError, urllib.error.HTTPError):
            return False


def _started(command: list[str], log: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
