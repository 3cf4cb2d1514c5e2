"""A cluster built from objects: nodes, Device objects, quotas, namespaces, storage objects and running pods."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from subak.cli.files import KINDS, Document, FileError, decode, documents, named
from subak.dialects.interpreter import Interpreter
from subak.model import manifest, volume
from subak.model.reason import Refusal
from subak.policy.decider import Decider


class Cluster(Decider):
    """A decider filled from objects.  `errors` are unreadable files, `warnings` say what was left out and why."""

    def __init__(self, interpreter: Interpreter) -> None:
        super().__init__(interpreter)
        self.errors: list[str] = []
        self.warnings: list[str] = []

    @classmethod
    def from_files(cls, interpreter: Interpreter, paths: Iterable[str]) -> Cluster:
        """The cluster that the files describe."""
        cluster = cls(interpreter)
        cluster.read(paths)
        return cluster

    def read(self, paths: Iterable[str]) -> None:
        """Take in all objects of the files; a malformed one never stops the others."""
        objects: dict[str, dict[tuple[str, str], Any]] = {kind: {} for kind in KINDS}
        for path in paths:
            for document in documents(path):
                if isinstance(document, FileError):
                    self.errors.append(str(document))
                elif document.kind in KINDS:
                    self._take(document, objects[document.kind])
        self.fill({kind: found.values() for kind, found in objects.items()})

    def fill(self, objects: Mapping[str, Iterable[Any]]) -> None:
        """Take in objects by kind, as far as they decide about pods, and book what running pods hold."""
        for kind in volume.KINDS:
            for stored in objects.get(kind, ()):
                self.volumes.see(stored)
        for namespace in objects.get("Namespace", ()):
            self.snapshot.see_namespace(namespace.name, namespace.labels)
        self._add_nodes(objects.get("Node", ()), {each.name: each for each in objects.get("Device", ())})
        for quota in objects.get("ResourceQuota", ()):
            self.warnings += self.quotas.put(quota)
        # Pods with a record come first: for the others we can only assume some of the remaining cards.
        pods: Iterable[manifest.Pod] = objects.get("Pod", ())
        for pod in sorted(pods, key=lambda pod: not self.interpreter.owned & pod.annotations.keys()):
            self._add_pod(pod)

    def _take(self, document: Document, known: dict[tuple[str, str], Any]) -> None:
        """Keep the object under its name; two with one name are the same object, given twice."""
        key = named(document)
        where = f"{document.place}: {document.kind} {key[1]}"
        if not key[1]:
            self.warnings.append(f"{document.place}: a {document.kind} without metadata.name is ignored")
            return
        try:
            fresh = decode(document, KINDS[document.kind])
        except Refusal as refusal:
            self.warnings.append(f"{where}: {refusal.message}; ignored")
            return
        if known.get(key, fresh) != fresh:
            self.warnings.append(f"{where} was given before and differs; the last one counts")
        known[key] = fresh

    def _add_nodes(self, nodes: Iterable[manifest.Node], devices: dict[str, manifest.Device]) -> None:
        digests = []
        for node in nodes:
            digest, warnings = self.interpreter.node(node, devices.pop(node.name, None), time.time())
            digests.append(digest)
            self.warnings += warnings
        self.warnings += [f"Device {name} belongs to no node of the cluster; ignored" for name in devices]
        self.snapshot.put(digests)

    def _add_pod(self, pod: manifest.Pod) -> None:
        """Book what a running pod holds."""
        if not pod.spec.node_name or pod.finished:
            return
        node = self.snapshot.node(pod.spec.node_name)
        if node is None:
            self.warnings.append(
                f"pod {pod.key} runs on {pod.spec.node_name}, which is not in the cluster; not counted"
            )
            return
        self.warnings += self.hold(pod, node).warnings
