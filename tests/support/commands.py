"""Short ways to run the command line: pods and clusters as objects in, exit code and output out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from subak.cli import cli

Object = dict[str, Any]
Content = Object | Sequence[Object] | str | bytes
"""Objects, or the content of a file."""

Limits = Mapping[Any, Any]


@dataclass(frozen=True)
class Answer:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The JSON on standard output."""
        return json.loads(self.out)

    @property
    def nodes(self) -> dict[str, str]:
        """The node of each placed pod."""
        return {each["name"]: each["node"] for each in self.data["placed"]}

    @property
    def rejected(self) -> Any:
        """The only rejected pod."""
        (rejected,) = self.data["rejected"]
        return rejected

    @property
    def pending(self) -> Any:
        """The only waiting pod."""
        (pending,) = self.data["pending"]
        return pending


def subak(*arguments: str | Path, stdin: str | bytes | None = None) -> Answer:
    """Run the command; any exception but an orderly exit is a bug."""
    result = CliRunner().invoke(cli, [str(each) for each in arguments], input=stdin, prog_name="subak")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


def write(path: Path, content: Content) -> Path:
    """Write a file and return its path."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        objects = [content] if isinstance(content, dict) else list(content)
        path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return path


def place(folder: Path, pods: Content, cluster: Content, *options: str) -> Answer:
    """`subak place` with JSON output."""
    pod_file, cluster_file = write(folder / "pods.yaml", pods), write(folder / "cluster.yaml", cluster)
    return subak("place", "-f", pod_file, "--cluster", cluster_file, *(options or ("-o", "json")))


def explain(folder: Path, pods: Content, cluster: Content, *options: str) -> Answer:
    """`subak explain` with text output."""
    pod_file, cluster_file = write(folder / "pods.yaml", pods), write(folder / "cluster.yaml", cluster)
    return subak("explain", "-f", pod_file, "--cluster", cluster_file, *options)


def pod(limits: Limits | None = None, name: str = "p", annotations: Limits | None = None, **spec: Any) -> Object:
    """A pod with one container `c`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {"containers": [{"name": "c", "resources": {"limits": dict(limits or {})}}], **spec},
    }


def node(name: str, capacity: Limits | None = None, register: str | None = None) -> Object:
    """A node; `register` is HAMi's annotation that lists NVIDIA cards."""
    annotations = {} if register is None else {"hami.io/node-nvidia-register": register}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations},
        "status": {"capacity": dict(capacity or {})},
    }


def asking(mib: object, name: str = "p", **more: Any) -> Object:
    """A pod that asks in Volcano's words for so many MiB of a card."""
    return pod({"volcano.sh/gpu-memory": mib}, name, **more)


def offering(name: str, mib: int, cards: int = 1) -> Object:
    """A node that offers in Volcano's words so many cards of so many MiB."""
    return node(name, {"volcano.sh/gpu-memory": mib * cards, "volcano.sh/gpu-number": cards})


def running(mib: int, on: str, name: str = "running", phase: str = "Running") -> Object:
    """A pod of Volcano's that holds so many MiB of the first card of a node."""
    held = asking(mib, name, annotations={"volcano.sh/gpu-index": "0"}, nodeName=on)
    return {**held, "status": {"phase": phase}}
