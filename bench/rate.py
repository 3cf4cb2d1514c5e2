"""Pods bound per second on a real API server: Subak beside the stock kube-scheduler, on the same server.

Fake nodes with cards, and pods that each ask for a slice of a card, created as fast as the server takes them.  Subak
chooses cards; kube-scheduler places the same pods by one plain extended resource.  They take turns, several rounds in
one run, and between two bursts all pods are deleted and counted.  With `--startup` it is measured how long Subak needs
until it is ready while so many pods run.

Everything runs on this machine, in a network namespace of its own (`tests/e2e`), so look at ratios.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from bench import fleet
from bench.burst import Burst, burst
from bench.cluster import Usage
from bench.contenders import CONTENDERS, EXTENDER, STOCK, SUBAK, Contender, subak
from bench.printed import say, show, table
from tests.e2e import PARTS, namespace, parts
from tests.e2e.cluster import Cluster
from tests.e2e.fakes import administrator, define_devices
from tinykube.client import Client

GOALS = {SUBAK: 1.5, EXTENDER: 0.5}
SLOWEST = 60
"""Pods a second, for an estimate of how long it all takes."""


def order(round: int) -> Sequence[Contender]:
    """The contenders of a round; each begins once, so that none has the freshest server always."""
    turn = round % len(CONTENDERS)
    return (*CONTENDERS[turn:], *CONTENDERS[:turn])


async def measure(cluster: Cluster, nodes: int, cards: int, pods: int, rounds: int) -> dict[str, list[Burst]]:
    """The bursts of each contender."""
    results: dict[str, list[Burst]] = {each.name: [] for each in CONTENDERS}
    async with administrator(cluster) as creator, administrator(cluster) as looker:
        await define_devices(creator)
        made = fleet.nodes(nodes, cards)
        await fleet.create_nodes(creator, made)
        say(f"{nodes:,} nodes are there")
        async with fleet.beating(creator, made):
            for round in range(rounds):
                for contender in order(round):
                    found = await measure_one(cluster, looker, contender, pods)
                    results[contender.name].append(found)
                    say(
                        f"round {round + 1} of {rounds}: {contender.name} bound {found.rate:,.1f} pods a second, "
                        f"{pods / found.creating:,.1f} were created"
                    )
                    await fleet.delete_pods(creator)
    return results


async def measure_one(cluster: Cluster, looker: Client, contender: Contender, pods: int) -> Burst:
    """One burst of a contender."""
    servers = {name: Usage(cluster.pid(name)) for name in ("kube-apiserver", "etcd")}
    with contender.running(cluster) as processes:
        every = {**processes, **servers}
        return await burst(cluster.kubeconfig, looker, pods, contender.scheduler, contender.resource, every)


async def start_up(cluster: Cluster, nodes: int, cards: int, pods: int) -> tuple[float, int]:
    """Seconds until Subak is ready while so many pods run, and its peak of memory in MiB."""
    async with administrator(cluster) as client:
        await fleet.create_pods(client, fleet.running(fleet.nodes(nodes, cards), pods))
    say(f"{pods:,} pods run")
    began = time.perf_counter()
    with subak(cluster) as processes:
        return time.perf_counter() - began, processes[SUBAK].memory_mib


def rates(results: dict[str, list[Burst]]) -> str:
    """Rates and waits: of each contender the median of its rounds, and of all pods."""
    stock = _rate(results[STOCK])
    rows = [
        [
            name,
            f"{_rate(found):,.1f}",
            ", ".join(f"{each.rate:,.1f}" for each in found),
            f"{_rate(found) / stock:.2f}",
            f"{_with_events(found):,.1f}",
            f"{_with_events(found) / _with_events(results[STOCK]):.2f}",
            f"{statistics.median(each.told_early / each.pods for each in found):.0%}",
            f"{GOALS[name]:.1f}" if name in GOALS else "",
            f"{statistics.median(each.waits.p50 for each in found) * 1e3:,.0f}",
            f"{statistics.median(each.waits.p99 for each in found) * 1e3:,.0f}",
        ]
        for name, found in results.items()
    ]
    headings = [
        "scheduler",
        "bound/s",
        "by round",
        "ratio",
        "with events/s",
        "ratio",
        "events by then",
        "goal",
        "created to bound, p50 ms",
        "p99 ms",
    ]
    return table(headings, rows)


def costs(results: dict[str, list[Burst]]) -> str:
    """CPU time for each pod, and the peak of memory, of each process."""
    rows = [
        [
            name,
            process,
            f"{statistics.median(each.cpu[process] / each.pods for each in found) * 1e3:,.2f}",
            f"{max(each.memory_mib[process] for each in found):,}",
        ]
        for name, found in results.items()
        for process in found[0].cpu
    ]
    return table(["scheduler", "process", "CPU, ms a pod", "memory, MiB"], rows)


def _with_events(found: Sequence[Burst]) -> float:
    return statistics.median(each.rate_with_events for each in found)


def _rate(found: Sequence[Burst]) -> float:
    return statistics.median(each.rate for each in found)


@click.command()
@click.option("--nodes", default=1_000, show_default=True, help="Fake nodes.")
@click.option("--cards", default=8, show_default=True, help="Cards of each node.")
@click.option("--pods", default=5_000, show_default=True, help="Pods of a burst.")
@click.option("--rounds", default=3, show_default=True, help="Bursts of each scheduler.")
@click.option("--startup", default=0, help="Measure also the start with so many pods running; the goal is 50,000.")
@click.option("--write", is_flag=True, help="Put the tables into docs/benchmarks.md.")
def main(nodes: int, cards: int, pods: int, rounds: int, startup: int, write: bool) -> None:
    """Measure pods bound per second on a real API server, beside the stock kube-scheduler."""
    if PARTS not in os.environ:
        enter()
    namespace.set_up()
    bursts = rounds * len(CONTENDERS)
    minutes = (bursts * pods * 1.4 + nodes * 2 + startup) / SLOWEST / 60
    say(f"{bursts} bursts of {pods:,} pods on {nodes:,} nodes: {minutes:.0f} minutes at most, less on a quiet machine")
    with Cluster(Path(os.environ[PARTS])) as cluster:
        results = asyncio.run(measure(cluster, nodes, cards, pods, rounds))
        started = asyncio.run(start_up(cluster, nodes, cards, startup)) if startup else None
    story = f"{nodes:,} nodes with {cards} cards each, {pods:,} pods a burst, the median of {rounds} bursts in turns."
    told = [story, rates(results), costs(results)]
    if started is not None:
        seconds, memory_mib = started
        told.append(f"Ready after {seconds:.1f} s with {startup:,} pods running (goal: 15 s); {memory_mib:,} MiB.")
    show(f"rate at {nodes:,} nodes", told, write)


def enter() -> None:
    """Run this command again in a network namespace of its own, with the programs of Kubernetes built."""
    try:
        found = str(parts.parts())
        command = namespace.entering([sys.executable, "-m", "bench", *sys.argv[1:]])
    except (parts.CannotBuild, namespace.NoNamespace) as problem:
        raise click.ClickException(str(problem)) from problem
    sys.stdout.flush()
    os.execvpe(command[0], command, {**os.environ, PARTS: found})
