"""A namespace of a test's own, and short ways to ask for what is in it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.contracts.client import JSON, TABLE, Answer, Client, Watch, eventually

KINDS = {
    "pods": ("/api/v1", "Pod"),
    "nodes": ("/api/v1", "Node"),
    "namespaces": ("/api/v1", "Namespace"),
    "events": ("/api/v1", "Event"),
    "configmaps": ("/api/v1", "ConfigMap"),
    "secrets": ("/api/v1", "Secret"),
    "services": ("/api/v1", "Service"),
    "serviceaccounts": ("/api/v1", "ServiceAccount"),
    "resourcequotas": ("/api/v1", "ResourceQuota"),
    "deployments": ("/apis/apps/v1", "Deployment"),
    "replicasets": ("/apis/apps/v1", "ReplicaSet"),
    "daemonsets": ("/apis/apps/v1", "DaemonSet"),
    "jobs": ("/apis/batch/v1", "Job"),
    "leases": ("/apis/coordination.k8s.io/v1", "Lease"),
    "priorityclasses": ("/apis/scheduling.k8s.io/v1", "PriorityClass"),
    "podgroups": ("/apis/scheduling.volcano.sh/v1beta1", "PodGroup"),
    "queues": ("/apis/scheduling.volcano.sh/v1beta1", "Queue"),
    "devices": ("/apis/scheduling.koordinator.sh/v1alpha1", "Device"),
}
GLOBAL = ("nodes", "namespaces", "priorityclasses", "queues", "devices")


class Space:
    """A namespace.  Paths are `pods`, `pods/NAME`, `pods/NAME/status`; one that begins with a slash is taken as is."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def __str__(self) -> str:
        """Its name."""
        return self.name

    def path(self, what: str) -> str:
        """The whole path."""
        if what.startswith("/"):
            return what
        plural, slash, rest = what.partition("/")
        plural, mark, query = plural.partition("?")
        prefix, _ = KINDS[plural]
        inside = "" if plural in GLOBAL else f"/namespaces/{self.name}"
        return f"{prefix}{inside}/{plural.split('.')[0]}{mark}{query}{slash}{rest}"

    def everywhere(self, plural: str) -> str:
        """The path of a kind's objects in all namespaces."""
        return f"{KINDS[plural][0]}/{plural.split('.')[0]}"

    def send(
        self, method: str, what: str, body: Any = None, *, headers: dict[str, str] | None = None, **query: Any
    ) -> Answer:
        """A request; its body gets apiVersion and kind if it is an object without them."""
        if isinstance(body, dict) and method in ("POST", "PUT", "APPLY") and "kind" not in body:
            body = typed(what, body)
        return self.client.send(method, self.path(what), body, headers=headers, query=query)

    def get(self, what: str, **query: Any) -> Answer:
        return self.send("GET", what, **query)

    def post(self, what: str, body: Any, **query: Any) -> Answer:
        return self.send("POST", what, body, **query)

    def put(self, what: str, body: Any, **query: Any) -> Answer:
        return self.send("PUT", what, body, **query)

    def merge(self, what: str, body: Any, **query: Any) -> Answer:
        return self.send("MERGE", what, body, **query)

    def apply(self, what: str, body: Any, **query: Any) -> Answer:
        return self.send("APPLY", what, body, **{"fieldManager": "tests", **query})

    def delete(self, what: str, body: Any = None, **query: Any) -> Answer:
        return self.send("DELETE", what, body, **query)

    def table(self, what: str, **query: Any) -> Answer:
        return self.send("GET", what, headers={"Accept": f"{TABLE},{JSON}"}, **query)

    def names(self, what: str, **query: Any) -> list[str]:
        """The names in a list."""
        return [each["metadata"]["name"] for each in self.get(what, **query).must(200)["items"]]

    @contextmanager
    def watch(self, what: str, *, accept: str = JSON, **query: Any) -> Iterator[Watch]:
        with self.client.watch(self.path(what), accept=accept, **query) as watch:
            yield watch

    def gone(self, what: str) -> bool:
        return self.get(what).code == 404

    def pod(self, name: str, *, node: bool = False, **spec: Any) -> Any:
        """Create a plain pod; `node`: bound, to a node that exists for this test only."""
        made = self.post("pods", {"metadata": {"name": name}, "spec": plain(**spec)}).must(201)
        if node:
            if self.gone(f"nodes/{self.name}-node"):
                self.post("nodes", {"metadata": {"name": f"{self.name}-node"}}).must(201)
            target = {"apiVersion": "v1", "kind": "Node", "name": f"{self.name}-node"}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            self.post(f"pods/{name}/binding", binding).must(201)
            made = self.get(f"pods/{name}").must(200)
        return made

    def remove(self) -> None:
        """Delete everything that bears our name, without waiting."""
        for plural in GLOBAL:
            for name in self.names(plural):
                if name.startswith(self.name):
                    self.delete(f"{plural}/{name}")


def plain(**more: Any) -> dict[str, Any]:
    """The spec of the smallest pod.  The embedded server issues no tokens, hence none are mounted."""
    return {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False, **more}


def typed(what: str, body: dict[str, Any]) -> dict[str, Any]:
    """An object with apiVersion and kind, as the path says."""
    parts = what.removeprefix("/").split("?")[0].split("/")
    if parts[0] not in KINDS or (len(parts) > 2 and parts[2] != "status"):
        return body
    prefix, kind = KINDS[parts[0]]
    return {"apiVersion": prefix.removeprefix("/apis/").removeprefix("/api/"), "kind": kind, **body}


@contextmanager
def fresh(client: Client) -> Iterator[Space]:
    """A new namespace in which pods can be created."""
    space = Space(client, "t-" + "".join(random.choices("bcdfghjklmnpqrstvwxz2456789", k=6)))
    space.post("namespaces", {"metadata": {"name": space.name}}).must(201)
    eventually(lambda: space.get("serviceaccounts/default").code == 200)
    try:
        yield space
    finally:
        space.remove()
