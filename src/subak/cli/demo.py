"""`subak demo`: the essence on one card, then the examples of all five documents, on a cluster of simulated cards.

It fits on less than two screens.  Every command that it shows works on a cluster of `subak up`, with the same output.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from subak.cli.cards import line, terminal
from subak.cli.columns import aligned
from subak.cli.drawing import Scene, draw
from subak.cli.examples import examples
from subak.cli.files import FileError, documents
from subak.cli.live import Picture, picture
from subak.cli.say import complain
from subak.cli.top import waiting_line
from subak.dialects.interpreter import Interpreter
from subak.local.cluster import LocalCluster
from subak.local.hardware import profiles
from subak.model.card import CardState
from subak.model.device import MIB
from tinykube.discovery import Discovery
from tinykube.resource import NAMESPACES, PODS
from tinykube.wait import condition, until

if TYPE_CHECKING:
    from rich.console import Console

PATIENCE = 60.0
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Part:
    """A document: a folder of `examples/`, and the namespace for its pods."""

    title: str
    folder: str
    namespace: str = DEFAULT


ESSENCE = Part("One card, three systems", "shared")
SHARED_NODE = "a10"
SHARING, WAITING = ("hami", "volcano", "koordinator"), "too-big"
LIMITS = ("LIMIT", "ALLOC")
"""The names of variables with a container's share contain one of these."""

LIMITED, MEMORY = "pod-example", "[0-9]*MiB / *[0-9]*MiB"
"""Koordinator's pod, and the memory in nvidia-smi's table: the last step of its document is to see the limit there."""

DOCUMENTS = (
    Part("Volcano", "volcano"),
    Part("Koordinator", "koordinator"),
    Part("Moore Threads", "moore-threads"),
    Part("Iluvatar", "iluvatar"),
    Part("MetaX, shared", "metax/sgpu", "sgpu"),
    Part("MetaX, whole", "metax/gpu", "gpu"),
)


@click.command()
@click.option("--keep", is_flag=True, help="Keep the cluster at the end, until Ctrl-C.")
def demo(keep: bool) -> None:
    """Start a cluster with simulated cards of every vendor, run the examples on it, and show who shares which card.

    Everything is real but the cards: an API server, the scheduler, and each container's command as a process.  Nothing
    is left when it ends.

    \b
    Examples:
      subak demo
      subak demo --keep     look around with subak and kubectl in another terminal

    \b
    Exit codes:
      0  every pod runs, and the one that is too big waits
      1  something else happened
    """
    try:
        sys.exit(asyncio.run(_demo(terminal(), keep)))
    except TimeoutError:
        complain([f"a pod is not as expected after {PATIENCE:.0f} s"])
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


async def _demo(console: Console, keep: bool) -> int:
    interpreter = Interpreter()
    machines = profiles.default(interpreter)
    began = time.monotonic()
    async with LocalCluster(machines, interpreter) as cluster:
        cards = sum(len(machine.devices) for machine in machines)
        took = time.monotonic() - began
        line(console, f"A cluster of {len(machines)} nodes with {cards} simulated cards, up after {took:.1f} s.")
        complain((), (), cluster.notes)
        await _play_essence(console, cluster)
        await _play_documents(console, cluster)
        await _play_limit(console, cluster)
        ok = await _as_expected(cluster)
        line(console, "All as expected: one pod waits, all others run." if ok else "Not as expected.")
        if keep:
            await _stay(console, cluster)
        else:
            line(console, "Next: subak up, then these commands in another terminal; or: subak demo --keep")
    return 0 if ok else 1


async def _play_essence(console: Console, cluster: LocalCluster) -> None:
    """Show pods of three systems on one card, the limits in each of their containers, and why a fourth one waits."""
    line(console, ("One card, three systems: HAMi, Volcano and Koordinator pods share an A10", "bold"))
    _shell(console, *_commands(ESSENCE))
    pods = await _apply(cluster, ESSENCE)
    now = await _settled(cluster, pods)
    _shell(console, f"subak top {SHARED_NODE}")
    node = now.cluster.snapshot.node(SHARED_NODE)
    assert node is not None, "it is one of the profiles"
    draw(console, [Scene(node, now.cluster.snapshot.cards(SHARED_NODE))])
    line(console, waiting_line([f"{DEFAULT}/{WAITING}"]))
    for name in SHARING:
        _shell(console, f"subak exec {name} -- env | grep -E '{'|'.join(LIMITS)}' | xargs")
        variables = await _printed(cluster, name, "env")
        line(console, " ".join(text for text in variables if any(word in text for word in LIMITS)))
    waits = now.cluster.explain(now.pods[f"{DEFAULT}/{WAITING}"])
    _shell(console, f"subak why {WAITING} | grep '^  1 node'")
    for group in waits.groups:
        if len(group.nodes) == 1:
            line(console, f"  {group}")


async def _play_documents(console: Console, cluster: LocalCluster) -> None:
    """Show the documents' own pods, and a line for each of their cards."""
    line(console, "")
    line(console, ("The pods of five documents, and what is taken of their cards (memory, cores)", "bold"))
    _shell(console, *_commands(*DOCUMENTS))
    pods = {part: await _apply(cluster, part) for part in DOCUMENTS}
    now = await _settled(cluster, [key for part in DOCUMENTS for key in pods[part]])
    rows = [row for part in DOCUMENTS for row in _rows(now, part, set(pods[part]))]
    for text in aligned(rows, gap=2):
        line(console, text)


async def _play_limit(console: Console, cluster: LocalCluster) -> None:
    """Show that a limit holds: what nvidia-smi says in the pod, and what a program gets that asks for more."""
    _shell(console, f"subak exec {LIMITED} -- nvidia-smi | grep -o '{MEMORY}'")
    for found in re.findall(MEMORY, "\n".join(await _printed(cluster, LIMITED, "nvidia-smi"))):
        line(console, found)
    _shell(console, f"subak exec {LIMITED} -- subak-allocate 12Gi")
    for text in await _printed(cluster, LIMITED, "subak-allocate", "12Gi"):
        line(console, text)
    line(console, "")


def _rows(now: Picture, part: Part, keys: set[str]) -> Iterator[list[str]]:
    """One row a card: document, pods, node, card, and what is taken of it."""
    title = part.title
    for node in now.cluster.snapshot:
        for card in now.cluster.snapshot.cards(node.name):
            if mine := keys & card.tenants.keys():
                names = " + ".join(sorted(key.removeprefix(f"{DEFAULT}/") for key in mine))
                yield [title, names, f"{node.name} {card.device.index}", *_taken(card)]
                title = ""


def _taken(card: CardState) -> tuple[str, str]:
    device = card.device
    return f"{card.memory_used // MIB:,}/{device.memory_bytes // MIB:,} MiB", f"{card.cores_used}/{device.cores}"


def _shell(console: Console, *commands: str) -> None:
    for command in commands:
        line(console, (f"$ {command}", "dim"))


def _commands(*parts: Part) -> Iterator[str]:
    """The commands that create these pods."""
    plain = [f"-f {_shown(part)}" for part in parts if part.namespace == DEFAULT]
    for start in range(0, len(plain), 2):
        yield f"subak apply {' '.join(plain[start : start + 2])}"
    for part in parts:
        if part.namespace != DEFAULT:
            yield f"subak create namespace {part.namespace}; subak apply -n {part.namespace} -f {_shown(part)}"


def _shown(part: Part) -> str:
    """The shortest path of a part's folder."""
    path = examples() / part.folder
    near = path.is_relative_to(Path.cwd())
    return shlex.quote(str(path.relative_to(Path.cwd()) if near else path))


async def _apply(cluster: LocalCluster, part: Part) -> list[str]:
    """Create the objects of a part; gives the keys of its pods."""
    client = cluster.client
    if part.namespace != DEFAULT:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": part.namespace}}
        await client.create(NAMESPACES, namespace)
    discovery = await Discovery.of(client)
    keys = []
    for document in documents(str(examples() / part.folder)):
        if isinstance(document, FileError):
            raise document
        resource = discovery.kind(str(document.content.get("apiVersion", "")), document.kind).resource
        await client.create(resource, document.content, part.namespace)
        if resource == PODS:
            keys.append(f"{part.namespace}/{document.name}")
    return keys


async def _settled(cluster: LocalCluster, keys: Iterable[str]) -> Picture:
    """The cluster once these pods run, or wait as they should.  Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        for key in keys:
            namespace, _, name = key.partition("/")
            expected = condition("PodScheduled", "False") if name == WAITING else condition("Ready")
            await until(cluster.client, PODS, name, namespace, expected)
    return await picture(cluster.client, cluster.interpreter)


async def _printed(cluster: LocalCluster, name: str, *command: str) -> list[str]:
    """The lines that a command prints in a pod."""
    pod = await cluster.client.get(PODS, name, DEFAULT)
    container = pod["spec"]["containers"][0]["name"]
    session = await cluster.kubelet.execute(pod, container, command, stdin=False, tty=False)
    printed = b"".join([data async for channel, data in session.output() if channel == 1])
    await session.close()
    return printed.decode(errors="replace").splitlines()


async def _as_expected(cluster: LocalCluster) -> bool:
    """Whether every pod runs except the one that is meant to wait."""
    pods = (await cluster.client.list(PODS)).items
    phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods}
    return all(phase == ("Pending" if name == WAITING else "Running") for name, phase in phases.items())


async def _stay(console: Console, cluster: LocalCluster) -> None:
    """Keep the cluster until the user ends it.  Its kubeconfig is another file than that of `subak up`."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await cluster.endpoint.start(0)
    with tempfile.TemporaryDirectory(prefix="subak-demo-") as folder:
        kubeconfig = Path(folder, "kubeconfig")
        kubeconfig.touch(0o600)
        kubeconfig.write_text(cluster.endpoint.kubeconfig(), encoding="utf-8")
        line(console, "The cluster stays until Ctrl-C.  In another terminal:")
        line(console, f"  export KUBECONFIG={shlex.quote(os.fspath(kubeconfig))}")
        line(console, f"  subak top; subak why {WAITING}; kubectl get pods -A")
        waiting = asyncio.create_task(stopped.wait())
        await asyncio.wait((waiting, cluster.failed), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
