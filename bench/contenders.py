"""The schedulers that `bench rate` compares, each started for a burst and killed after it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.cluster import Usage
from bench.fleet import PLAIN, SHARED
from tests.e2e.cluster import Cluster

SUBAK, STOCK = "Subak", "kube-scheduler"


@dataclass(frozen=True)
class Contender:
    """A scheduler: which pods it gets, and how its processes are started; they run while the context is open."""

    name: str
    scheduler: str
    resource: str
    running: Callable[[Cluster], Any]


@contextmanager
def subak(cluster: Cluster, *options: str) -> Iterator[Mapping[str, Usage]]:
    """Subak in a process of its own, from the moment that it has seen all objects."""
    command = [sys.executable, "-m", "tests.e2e.runner", str(cluster.kubeconfig), *options]
    # setpriv: if this process is killed, the kernel ends the scheduler too.
    guarded = ["setpriv", "--pdeathsig", "KILL", "--", *command]
    with subprocess.Popen(guarded, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError("the scheduler ended before it was ready")
            yield {SUBAK: Usage(process.pid)}
        finally:
            process.kill()


@contextmanager
def stock(cluster: Cluster) -> Iterator[Mapping[str, Usage]]:
    """The stock kube-scheduler; its default of 50 requests a second would be the limit."""
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig), "qps": 5000, "burst": 5000},
    }
    path = cluster.directory / "scheduler.json"
    path.write_text(json.dumps(configuration))
    cluster.start(STOCK, f"--config={path}")
    try:
        yield {STOCK: Usage(cluster.pid(STOCK))}
    finally:
        cluster.stop(STOCK)


CONTENDERS = (
    Contender(SUBAK, "volcano", SHARED, subak),
    Contender(STOCK, "default-scheduler", PLAIN, stock),
)
