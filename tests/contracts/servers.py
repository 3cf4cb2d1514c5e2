"""The two servers, each as a client sees it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.contracts.client import Client, eventually
from tests.contracts.embedded import HISTORY, Embedded
from tests.contracts.space import KINDS, Space
from tests.e2e.cluster import ADDRESS, ETCD, Cluster
from tests.e2e.identities import TOKEN
from tests.support.custom import CUSTOM


@contextmanager
def embedded(workloads: bool = False) -> Iterator[Client]:
    """A server in this process, with those who run workloads or without."""
    started = Embedded(workloads)
    client = Client(started.address, started.authority, started.token)
    yield client
    client.close()
    started.stop()


@contextmanager
def real(authority: Path) -> Iterator[Client]:
    """The server of a real cluster that is running; it learns our kinds."""
    client = Client(ADDRESS, authority.read_text(), TOKEN)
    for kind in CUSTOM:
        _define(client, dict(kind.definition or {}))
    yield client
    client.close()


def _define(client: Client, definition: dict[str, Any]) -> None:
    answer = client.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    assert answer.code in (201, 409), answer.body
    spec = definition["spec"]
    served = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    eventually(lambda: client.send("GET", served).code == 200)


def compact(client: Client, cluster: Cluster) -> None:
    """Make a real server forget the past: etcd has a door for that, and a restart empties the server's own memory."""
    space = Space(client, "default")
    revision = space.get("configmaps").must(200)["metadata"]["resourceVersion"]
    body = json.dumps({"revision": revision}).encode()
    with urllib.request.urlopen(f"{ETCD}/v3/kv/compaction", data=body, timeout=10) as answer:
        assert answer.status == 200
    cluster.restart("kube-apiserver")
    cluster.restart("kube-controller-manager")  # or else it comes back at its leisure
    account = "serviceaccounts/default"
    uid = space.get(account).must(200)["metadata"]["uid"]
    space.delete(account)
    eventually(lambda: space.get(account).code == 200 and space.get(account).json["metadata"]["uid"] != uid, 60)
    eventually(lambda: all(space.get(plural).code == 200 for plural in KINDS), 60)


def outlive(space: Space) -> None:
    """Make the embedded server forget the past of config maps: more happens than it remembers, a quarter at a time."""
    space.post("configmaps", {"metadata": {"name": "outlive"}}).must(201)
    for index in range(HISTORY + HISTORY // 4 + 1):
        space.merge("configmaps/outlive", {"data": {"x": str(index)}}).must(200)
