"""What is free on the cards, per node and model, in the text that Prometheus reads.

The columns are summed up when somebody asks, so that nothing is counted twice and decisions pay nothing for it.  The
lines are written here and not by prometheus-client: at 5,000 nodes its objects would take longer than a cycle may.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import ALIVE, CORES, MEMORY, Column, Pool

HELP = {
    "subak_free_memory_bytes": "Memory that is free on the healthy cards of a node, by model.",
    "subak_free_cores": "Cores that are free on them, in the vendor's units (percent of a card; Moore Threads: 16ths).",
    "subak_largest_free_slice_bytes": "The most memory that is free on one of them.",
}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def printed(snapshot: Snapshot) -> str:
    """All lines, with their help."""
    labels: list[str] = []
    figures: list[Column] = []
    for pool in snapshot.pools:
        for names, sums in _free(pool):
            labels += names
            figures.append(sums)
    columns = np.concatenate(figures, axis=1).tolist() if figures else [[]] * len(HELP)
    lines: list[str] = []
    for (name, text), column in zip(HELP.items(), columns, strict=True):
        lines += (f"# HELP {name} {text}", f"# TYPE {name} gauge")
        lines += [f"{name}{{{label}}} {figure}" for label, figure in zip(labels, column, strict=True)]
    return "\n".join([*lines, ""])


def _free(pool: Pool) -> Iterator[tuple[list[str], Column]]:
    """For each model of a pool, the labels of the nodes that have it, and what is free there as HELP has it."""
    size = pool.size
    there = np.zeros(size, np.bool_)
    there[list(pool)] = True
    gpus = np.array(pool.is_gpu, np.bool_)[:, None] & there
    alive = pool.state[ALIVE, :, :size] > 0
    memory, cores = (pool.state[row, :, :size].clip(0) for row in (MEMORY, CORES))
    models: dict[str, list[int]] = {}
    for number, (model, _) in enumerate(pool.kinds):
        models.setdefault(model, []).append(number)
    for model, numbers in models.items():
        cards = gpus & np.isin(pool.types[:, :size], numbers)
        nodes = np.flatnonzero(cards.any(axis=0))
        if not len(nodes):
            continue
        usable = (cards & alive)[:, nodes]
        free = np.where(usable, memory[:, nodes], 0)
        sums = np.stack([free.sum(axis=0), np.where(usable, cores[:, nodes], 0).sum(axis=0), free.max(axis=0)])
        shown = model.translate(_ESCAPES)
        yield [f'node="{pool.nodes[at].name}",model="{shown}"' for at in nodes.tolist()], sums
