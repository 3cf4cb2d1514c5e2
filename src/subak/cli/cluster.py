"""A cluster from files: nodes, Device objects, quotas, and the pods that already run there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from subak.cli.files import KINDS, FileError, decode, documents, named
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.placement import Placement
from subak.model.reason import Refusal
from subak.policy.on_node import on_node
from subak.policy.quota import Quotas
from subak.snapshot.cluster import Snapshot


@dataclass(slots=True)
class Cluster:
    """What a cluster file describes.  `errors` are unreadable files, `warnings` all that was left out and why."""

    interpreter: Interpreter
    snapshot: Snapshot = field(default_factory=Snapshot)
    quotas: Quotas = field(default_factory=Quotas)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def from_files(cls, interpreter: Interpreter, paths: Iterable[str]) -> Cluster:
        """The cluster that the files describe."""
        cluster = cls(interpreter, quotas=Quotas(interpreter.quota_units))
        cluster.read(paths)
        return cluster

    def read(self, paths: Iterable[str]) -> None:
        """Take in everything that the files hold; a malformed object never stops the others."""
        objects: dict[str, list[manifest.Lean]] = {kind: [] for kind in KINDS}
        for path in paths:
            for document in documents(path):
                if isinstance(document, FileError):
                    self.errors.append(str(document))
                elif document.kind in KINDS:
                    try:
                        objects[document.kind].append(decode(document, KINDS[document.kind]))
                    except Refusal as refusal:
                        _, name = named(document)
                        self.warnings.append(f"{document.place}: {document.kind} {name}: {refusal.message}; ignored")
        devices = {each.name: each for each in objects["Device"] if isinstance(each, manifest.Device)}
        self._add_nodes([each for each in objects["Node"] if isinstance(each, manifest.Node)], devices)
        for quota in objects["ResourceQuota"]:
            if isinstance(quota, manifest.ResourceQuota):
                self.warnings += self.quotas.put(quota)
        for pod in objects["Pod"]:
            if isinstance(pod, manifest.Pod):
                self._add_pod(pod)

    def _add_nodes(self, nodes: list[manifest.Node], devices: dict[str, manifest.Device]) -> None:
        digests = {}
        for node in nodes:
            if not node.name:
                self.warnings.append("a node without metadata.name is ignored")
                continue
            digest, warnings = self.interpreter.node(node, devices.pop(node.name, None))
            digests[node.name] = digest
            self.warnings += warnings
        self.warnings += [f"Device {name} belongs to no node of the cluster; ignored" for name in devices]
        self.snapshot.put(digests.values())

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
        try:
            placement = self.interpreter.placement(pod, node)
            request = self.interpreter.request(pod)
        except (Refusal, ValueError) as error:
            self.warnings.append(f"pod {pod.key}: {error}; its cards are not counted")
            return
        if request.claims and not placement.grants:
            # Whoever placed it did not say where.  Its amounts are taken from the cards that we would have chosen.
            grants = on_node(node, self.snapshot.cards(node.name), request)
            self.warnings.append(f"pod {pod.key} does not say which cards of {node.name} it holds; assumed")
            placement = Placement(node.name, grants if isinstance(grants, tuple) else ())
        unknown = {share.id for grant in placement.grants for share in grant.shares if node.device(share.id) is None}
        for id in sorted(unknown):
            self.warnings.append(f"pod {pod.key} holds card {id}, which node {node.name} does not have; not counted")
        self.snapshot.restore(pod.key, placement, request.needs.resources)
        self.quotas.charge(pod.namespace, placement)
