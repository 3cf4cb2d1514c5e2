"""Random objects, parts of objects and patches.

Names and values come from small pools, so that drafts meet each other often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

from tinykube.server.schema import ANY, Field

Json = dict[str, Any]

# Fields without which an object or an item is not what it is.
_KEPT = frozenset({"name", "metadata", "uid", "kind", "apiVersion", "containerPort", "port", "ip", "type", "names"})


class Drafts:
    """Makes things up.  A `whole` draft can be created; another one is a part, as it is patched or applied."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def chance(self, percent: int) -> bool:
        """True so many times out of a hundred."""
        return self.random.random() * 100 < percent

    def some(self, *items: Any) -> list[Any]:
        """Some of the items, in any order."""
        chosen = [each for each in items if self.chance(50)]
        self.random.shuffle(chosen)
        return chosen

    def named(self, *names: str, **more: Iterable[Any]) -> list[Json]:
        """Items with some of the names, and one value of each other field."""
        return [
            {"name": name} | {key: self.random.choice([*of]) for key, of in more.items()} for name in self.some(*names)
        ]

    def map(self, keys: Iterable[str], values: Iterable[Any] = ("1", "2")) -> Json:
        """Some of the keys, each with one of the values."""
        return {key: self.random.choice([*values]) for key in self.some(*keys)}

    def maybe(self, **fields: tuple[int, Callable[[], Any]]) -> Json:
        """Fields that are there so many times out of a hundred."""
        return {key: make() for key, (percent, make) in fields.items() if self.chance(percent)}

    def metadata(self) -> Json:
        """Labels and the like."""
        owner = {"apiVersion": "patches.example/v1", "kind": "Nothing"}
        return self.maybe(
            labels=(40, lambda: self.map("abc")),
            annotations=(30, lambda: self.map(["x/a", "b"])),
            finalizers=(30, lambda: self.some("x.io/a", "x.io/b", "x.io/c")),
            ownerReferences=(
                25,
                lambda: [owner | {"name": self.random.choice("nm"), "uid": uid} for uid in self.some("u1", "u2")],
            ),
        )

    def config_map(self, whole: bool) -> Json:
        """A ConfigMap: maps of plain values."""
        return {"metadata": self.metadata()} | self.maybe(
            data=(80, lambda: self.map("abcd", "123")), binaryData=(30, lambda: self.map("ef", ["AAA=", "BBB="]))
        )

    def service_account(self, whole: bool) -> Json:
        """A ServiceAccount: a list that is a map of atomic items, and an atomic list."""
        return {"metadata": self.metadata()} | self.maybe(
            secrets=(70, lambda: self.named("a", "b", "c")),
            imagePullSecrets=(50, lambda: self.named("a", "b")),
            automountServiceAccountToken=(30, lambda: self.chance(50)),
        )

    def service(self, whole: bool) -> Json:
        """A Service: two keys, one of which has a default."""
        ports = [80] if whole else self.some(80, 81, 82)
        spec = self.maybe(
            ports=(100 if whole else 60, lambda: [self._service_port(port) for port in ports]),
            selector=(50, lambda: self.map("ab")),
            sessionAffinity=(20, lambda: self.random.choice(["None", "ClientIP"])),
        )
        return {"metadata": self.metadata(), "spec": spec}

    def _service_port(self, port: int) -> Json:
        return {"port": port, "name": self.random.choice([f"n{port}", f"m{port}"])} | self.maybe(
            protocol=(40, lambda: self.random.choice(["TCP", "UDP"])),
            targetPort=(50, lambda: self.random.choice([1, 2, "x"])),
        )

    def pod_template(self, whole: bool) -> Json:
        """A PodTemplate: everything that a pod has, and all of it can be changed."""
        template = {"spec": self.pod_spec(whole)} | self.maybe(metadata=(40, lambda: {"labels": self.map("lm")}))
        return {"metadata": self.metadata(), "template": template}

    def pod_spec(self, whole: bool) -> Json:
        """The spec of a pod."""
        names = self.some("a", "b", "c") or ["a"] * whole
        sources: tuple[Json, ...] = ({"emptyDir": {}}, {"configMap": {"name": "c"}}, {"hostPath": {"path": "/x"}})
        return self.maybe(
            containers=(100 if whole or names else 20, lambda: [self.container(name, whole) for name in names]),
            nodeSelector=(30, lambda: self.map("kl")),
            volumes=(40, lambda: [{"name": name} | self.random.choice(sources) for name in self.some("v1", "v2")]),
            imagePullSecrets=(30, lambda: self.named("p", "q")),
            tolerations=(30, lambda: [{"key": key, "operator": "Exists"} for key in self.some("t", "u")]),
            hostAliases=(20, lambda: [{"ip": ip, "hostnames": self.some("h", "i")} for ip in self.some("::1", "::2")]),
            hostNetwork=(15, lambda: self.chance(50)),
            securityContext=(20, lambda: {"runAsUser": self.random.choice([1, 2])}),
            schedulerName=(15, lambda: self.random.choice("st")),
        )  # fmt: skip

    def container(self, name: str, whole: bool) -> Json:
        """A container, perhaps without an image."""
        return {"name": name} | self.maybe(
            image=(100 if whole else 50, lambda: self.random.choice("xy")),
            args=(30, lambda: self.some("a", "b", "c")),
            ports=(40, lambda: [self._container_port(port) for port in self.some(80, 81)]),
            env=(50, lambda: self.named(*"ABCD", value="12")),
            resources=(30, lambda: {"limits": self.map(["cpu", "memory"])}),
            securityContext=(20, lambda: self.map(["privileged", "readOnlyRootFilesystem"], [True, False])),
        )

    def _container_port(self, port: int) -> Json:
        return {"containerPort": port} | self.maybe(protocol=(50, lambda: self.random.choice(["TCP", "UDP"])))

    def pod_status(self, whole: bool) -> Json:
        """A pod, or a part of its status."""
        if whole:
            return {"metadata": self.metadata(), "spec": {"containers": [{"name": "a", "image": "x"}]}}
        conditions = [
            {"type": kind, "status": self.random.choice(["True", "False"])} for kind in self.some("A", "B", "C")
        ]
        status = self.maybe(
            conditions=(70, lambda: conditions),
            phase=(40, lambda: self.random.choice(["Pending", "Running"])),
            message=(30, lambda: self.random.choice("mn")),
            nominatedNodeName=(20, lambda: self.random.choice("mn")),
        )
        return {"metadata": self.maybe(labels=(40, lambda: self.map("ab"))), "status": status}

    def queue(self, whole: bool) -> Json:
        """A Queue: a custom kind with defaults and fields of any kind."""
        resources = ["cpu", "nvidia.com/gpu"]
        spec = self.maybe(
            weight=(50, lambda: self.random.choice([1, 2])),
            capability=(50, lambda: self.map(resources, ("1", 2))),
            guarantee=(40, lambda: {"resource": self.map(resources)}),
            parent=(30, lambda: self.random.choice("pq")),
            extendClusters=(30, lambda: self.named("a", "b", weight=(1, 2))),
            extra=(40, lambda: self.random.choice([1, "x", [1, 2], {"a": 1}, {"a": {"b": 2}}, {"b": [1]}])),
        )
        return {"metadata": self.metadata(), "spec": spec}

    def queue_status(self, whole: bool) -> Json:
        """A Queue's status."""
        status = self.maybe(
            state=(50, lambda: self.random.choice(["Open", "Closed"])),
            pending=(50, lambda: self.random.choice([1, 2])),
            allocated=(50, lambda: self.map(["cpu", "memory"])),
        )
        return (self.queue(True) if whole else {"metadata": self.metadata()}) | {"status": status}

    # Changes

    def with_nulls(self, value: Any) -> Any:
        """A value in which some fields are null."""
        if isinstance(value, list):
            return [self.with_nulls(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            key: None if key not in _KEPT and self.chance(15) else self.with_nulls(each) for key, each in value.items()
        }

    def with_directives(self, patch: Json, schema: Field, depth: int = 0) -> Json:
        """A strategic merge patch with directives in it."""
        result: Json = {}
        for key, value in patch.items():
            below = (schema.properties or {}).get(key, ANY)
            if key not in _KEPT and self.chance(8):
                result[key] = None
            elif isinstance(value, dict):
                result[key] = self.with_directives(value, below, depth + 1)
            elif isinstance(value, list) and "merge" in below.strategies:
                result |= self._directed_list(key, value, below, depth)
            else:
                result[key] = value
        if depth and self.chance(4):
            result["$patch"] = self.random.choice(["replace", "delete"])
        if depth and self.chance(5):
            result["$retainKeys"] = [key for key in result if not key.startswith("$")]
        return result

    def _directed_list(self, field: str, items: list[Any], schema: Field, depth: int) -> Json:
        if not schema.merge_key:
            if self.chance(25):
                return {f"$deleteFromPrimitiveList/{field}": items}
            order = self._mixed(items, ["x.io/a", "x.io/z"])
            return {field: items} | ({f"$setElementOrder/{field}": order} if items and self.chance(25) else {})
        changed = []
        for item in items:
            directed = self.with_directives(item, schema.items or ANY, depth + 1)
            changed.append(directed | {"$patch": "delete"} if self.chance(15) else directed)
        key = schema.merge_key
        result: Json = {field: changed}
        if items and self.chance(35):
            kept = [{key: each[key]} for each in changed if "$patch" not in each and key in each]
            others = [{key: each} for each in ("a", "b", "c", "A", "B", "C", "D", 80, 81, "v1", "u1")]
            result[f"$setElementOrder/{field}"] = self._mixed(kept, others) or [others[0]]
        return result

    def _mixed(self, items: list[Any], others: list[Any]) -> list[Any]:
        """The items in their order, with some others among them."""
        result = list(items)
        for other in self.some(*others):
            if type(other) in map(type, items[:1]) and other not in result:
                result.insert(self.random.randrange(len(result) + 1), other)
        return result

    def operations(self, live: Json, donor: Json) -> list[Json]:
        """A JSON patch, most of which applies to `live`; values come from `donor`."""
        tracked = {
            key: live["metadata"][key] for key in ("labels", "annotations", "finalizers") if key in live["metadata"]
        }
        here = [*_paths({key: live[key] for key in donor if key in live} | {"metadata": tracked})]
        there = dict(_paths(donor))
        return [self._operation(here, there) for _ in range(self.random.randint(1, 4))]

    def _operation(self, here: list[tuple[str, Any]], there: dict[str, Any]) -> Json:
        path, value = self.random.choice(here if self.chance(60) or not there else [*there.items()])
        operation: Json = {
            "op": self.random.choice(["add", "add", "remove", "replace", "test", "copy", "move"]),
            "path": path,
        }
        match operation["op"]:
            case "add" | "replace":
                operation["value"] = there.get(path, value)
            case "test":
                operation["value"] = value if self.chance(80) else "other"
            case "copy" | "move":
                operation["from"] = self.random.choice(here)[0]
        if self.chance(10):
            operation["path"] += self.random.choice(["/-", "/0", "/-1", "/99", "/other"])
        return operation


def _paths(value: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    children: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for key, each in children:
        if key != "ownerReferences":  # the server removes those that are there twice, but notes them as changed
            path = f"{before}/{str(key).replace('~', '~0').replace('/', '~1')}"
            yield path, each
            yield from _paths(each, path)
