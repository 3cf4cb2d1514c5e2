"""The schedulers that `bench rate` compares, each started for a burst and killed after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from bench.cluster import Usage
from bench.fleet import PLAIN, SHARED
from subak.dialects.interpreter import Interpreter
from subak.scheduler.extender.configuration import configuration
from tests.e2e import runner
from tests.e2e.cluster import Cluster

SUBAK, STOCK, EXTENDER = "Subak", "kube-scheduler", "kube-scheduler with Subak's extender"
PORT = 8118

Processes = Mapping[str, Usage]


@dataclass(frozen=True)
class Contender:
    """A scheduler: which pods it gets, and how its processes are started; they run while the context is open."""

    name: str
    scheduler: str
    resource: str
    running: Callable[[Cluster], AbstractContextManager[Processes]]


@contextmanager
def subak(cluster: Cluster) -> Iterator[Processes]:
    """Subak in a process of its own, from the moment that it has seen all objects."""
    with runner.running(cluster.kubeconfig) as process:
        yield {SUBAK: Usage(process.pid)}


@contextmanager
def kube_scheduler(cluster: Cluster, content: Mapping[str, Any]) -> Iterator[Processes]:
    """kube-scheduler with this configuration; its default of 50 requests a second would be the limit."""
    connection = {"kubeconfig": str(cluster.kubeconfig), "qps": 5000, "burst": 5000}
    path = cluster.directory / "scheduler.json"
    path.write_text(json.dumps({**content, "clientConnection": connection}))
    cluster.start("kube-scheduler", f"--config={path}")
    try:
        yield {STOCK: Usage(cluster.pid("kube-scheduler"))}
    finally:
        cluster.stop("kube-scheduler")


def stock(cluster: Cluster) -> AbstractContextManager[Processes]:
    """The stock kube-scheduler."""
    return kube_scheduler(
        cluster, {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    )


@contextmanager
def extended(cluster: Cluster) -> Iterator[Processes]:
    """kube-scheduler that asks Subak for cards."""
    content = configuration(Interpreter().resources, f"http://{runner.HOST}:{PORT}")
    with (
        runner.running(cluster.kubeconfig, f"--extender={runner.HOST}:{PORT}") as process,
        kube_scheduler(cluster, content) as processes,
    ):
        yield {**processes, SUBAK: Usage(process.pid)}


CONTENDERS = (
    Contender(SUBAK, "volcano", SHARED, subak),
    Contender(STOCK, "default-scheduler", PLAIN, stock),
    Contender(EXTENDER, "volcano", SHARED, extended),
)
