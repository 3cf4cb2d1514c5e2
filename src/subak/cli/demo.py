"""`subak demo`: the examples of all five documents on a cluster of simulated cards, told as they happen."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from subak.cli.cards import line, terminal
from subak.cli.drawing import Scene, draw
from subak.cli.explain import explanation, show_answer
from subak.cli.files import FileError, documents
from subak.cli.live import picture
from subak.cli.say import complain
from subak.dialects.interpreter import Interpreter
from subak.kube.resource import NAMESPACES, PODS
from subak.kube.wait import condition, until
from subak.local.cluster import Cluster
from subak.local.hardware import profiles
from subak.model.device import MIB
from subak.model.placement import Charge
from subak.snapshot.card import CardState

if TYPE_CHECKING:
    from rich.console import Console

PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the demo: what it shows, files of `examples/` in their order, and the namespace for their pods."""

    title: str
    namespace: str
    files: tuple[str, ...]
    waits: tuple[str, ...] = ()


PARTS = (
    Part(
        "Volcano: two pods with 1024 MiB each share the first card",
        "volcano",
        ("volcano/gpu-pod1.yaml", "volcano/gpu-pod2.yaml"),
    ),
    Part(
        "Koordinator: half of a P40, beside a pod that holds half of the other card",
        "default",
        ("koordinator/notebook.yaml", "koordinator/pod.yaml"),
    ),
    Part("Moore Threads: 32 x 512 MiB and 8/16 of the cores", "moore-threads", ("moore-threads/pod.yaml",)),
    Part(
        "Iluvatar: 64 x 256 MiB and half of the cores, in the older and in the newer names",
        "iluvatar",
        ("iluvatar/pod.yaml", "iluvatar/bi-v150.yaml"),
    ),
    Part("MetaX: 4 GiB and 60 percent of a card", "metax-sgpu", ("metax/sgpu/pod.yaml",)),
    Part("MetaX: a whole card, chosen by its links", "metax-gpu", ("metax/gpu/pod.yaml",)),
    Part(
        "One card for three systems: HAMi, Volcano and Koordinator share it, and a fourth pod is too big",
        "shared",
        ("shared/1-hami.yaml", "shared/2-volcano.yaml", "shared/3-koordinator.yaml", "shared/4-too-big.yaml"),
        waits=("too-big",),
    ),
)


@click.command()
def demo() -> None:
    """Start a cluster with simulated cards of every vendor, run the examples on it, and show who shares which card.

    Everything is real but the cards: an API server, the scheduler, and each container's command as a process.  Nothing
    is left when it ends.

    \b
    Exit codes:
      0  every pod runs, and the one that is too big waits
      1  something else happened
    """
    try:
        sys.exit(asyncio.run(_demo(terminal())))
    except KeyboardInterrupt:
        sys.exit(130)


def examples() -> Path:
    """Where the examples are: in the package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    inside = package / "examples"
    return inside if inside.is_dir() else package.parent.parent / "examples"


async def _demo(console: Console) -> int:
    interpreter = Interpreter()
    machines = profiles.default(interpreter)
    cards = sum(len(machine.devices) for machine in machines)
    line(console, (f"Starting a cluster: {len(machines)} nodes with {cards} simulated cards", "bold"))
    began = time.monotonic()
    async with Cluster(machines, interpreter) as cluster:
        line(console, f"ready after {time.monotonic() - began:.1f} s")
        complain((), (), cluster.notes)
        for part in PARTS:
            line(console, "")
            line(console, (f"=== {part.title}", "bold"))
            await _play(console, cluster, part)
        line(console, "")
        line(console, ("=== Every card and who holds a part of it", "bold"))
        now = await picture(cluster.client, interpreter)
        snapshot = now.cluster.snapshot
        draw(console, [Scene(node, snapshot.cards(node.name)) for node in snapshot])
        ok = await _as_expected(cluster)
    line(console, "")
    line(console, "All as expected: one pod waits, all others run." if ok else "Not as expected.")
    return 0 if ok else 1


async def _play(console: Console, cluster: Cluster, part: Part) -> None:
    """Create the pods of a part one after the other, and show what each gets."""
    if part.namespace != "default":
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": part.namespace}}
        await cluster.client.create(NAMESPACES, namespace)
    for file in part.files:
        line(console, (f"\n$ subak apply -n {part.namespace} -f examples/{file}", "dim"))
        for document in documents(str(examples() / file)):
            if isinstance(document, FileError):
                raise document
            created = await cluster.client.create(PODS, document.content, part.namespace)
            name = created["metadata"]["name"]
            expected = condition("PodScheduled", "False") if name in part.waits else condition("Ready")
            async with asyncio.timeout(PATIENCE):
                pod = await until(cluster.client, PODS, name, part.namespace, expected)
            if name in part.waits:
                await _show_waiting(console, cluster, pod)
            else:
                written = document.content["metadata"].get("annotations", {})
                await _show_running(console, cluster, pod, written)


async def _show_running(console: Console, cluster: Cluster, pod: dict[str, Any], written: Collection[str]) -> None:
    """Where the pod runs, the annotations that it has beside those `written` by its user, and what containers see."""
    now = await picture(cluster.client, cluster.interpreter)
    lean = now.pods[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"]
    line(console, (lean.key, "green"), f" is {pod['status']['phase']} on ", (lean.spec.node_name, "bold"))
    for card in now.cluster.snapshot.cards(lean.spec.node_name):
        if lean.key in card.tenants:
            line(console, f"    {_held(card, card.tenants[lean.key])}")
    for key, text in sorted(lean.annotations.items()):
        if key not in written:
            line(console, f"    {key}: {text}")
    node = now.cluster.snapshot.node(lean.spec.node_name)
    assert node is not None, "the pod runs there"
    given = cluster.interpreter.injections(lean, cluster.interpreter.placement(lean, node), node)
    for container, injection in zip(lean.containers, given, strict=True):
        line(console, (f"    $ subak exec {lean.name} -n {lean.namespace} -c {container.name} -- env", "dim"))
        for variable in await _environment(cluster, pod, container.name):
            if variable.partition("=")[0] in injection.env:
                line(console, f"    {variable}")
        if not injection.env:
            line(console, "    (nothing is added: this vendor's plugin goes by the annotations)")


def _held(card: CardState, charge: Charge) -> str:
    device = card.device
    memory = f"{charge.memory_bytes // MIB:,} of {device.memory_bytes // MIB:,} MiB"
    return f"card {device.index} ({device.model or device.family}): {memory}, {charge.cores} of {device.cores} cores"


async def _environment(cluster: Cluster, pod: dict[str, Any], container: str) -> Sequence[str]:
    """What `env` prints in a container."""
    session = await cluster.kubelet.execute(pod, container, ["env"], stdin=False, tty=False)
    printed = b"".join([data async for channel, data in session.output() if channel == 1])
    await session.close()
    return sorted(printed.decode(errors="replace").splitlines())


async def _show_waiting(console: Console, cluster: Cluster, pod: dict[str, Any]) -> None:
    now = await picture(cluster.client, cluster.interpreter)
    lean = now.pods[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"]
    line(console, (lean.key, "yellow"), f" is {pod['status']['phase']}")
    show_answer(lean, explanation(now.cluster, lean), wide=True)


async def _as_expected(cluster: Cluster) -> bool:
    """Whether every pod runs but those that are meant to wait."""
    waiting = {f"{part.namespace}/{name}" for part in PARTS for name in part.waits}
    pods = (await cluster.client.list(PODS)).items
    phases = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod["status"]["phase"] for pod in pods}
    return all((phase == "Pending") if key in waiting else (phase == "Running") for key, phase in phases.items())
