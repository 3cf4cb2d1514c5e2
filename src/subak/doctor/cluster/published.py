"""What nodes publish of their cards: whether amounts and labels are those of the cards that they describe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from subak.dialects import Published, mark
from subak.dialects.amounts import published
from subak.doctor import Finding, listed, ok, warning
from subak.doctor.cluster import Books, Cluster
from subak.doctor.cluster.objects import Node


async def labels(cluster: Cluster) -> Sequence[Finding]:
    """Whether nodes with our agent have the labels by which pods choose nodes; another value is the administrator's.

    A label without a domain is not the agent's to write: HAMi's `gpu` would bring HAMi's own agent there.
    """
    books = (await cluster.ledger()).cluster
    marked = [stored for stored in await cluster.nodes() if mark.marked(stored)]
    wrong: list[str] = []
    for stored in marked:
        for said in _said(books, stored.name):
            missing = [f"{key}={text}" for key, text in said.labels.items() if "/" in key and key not in stored.labels]
            wrong += [f"{stored.name} lacks {each}" for each in missing]
    if wrong:
        remedy = "the agent writes them: see its log; where somebody else keeps changing them, end that"
        return [warning(listed(list(dict.fromkeys(wrong)), 3), remedy)]
    return [ok("as the agents write them")] if marked else []


async def capacity(cluster: Cluster) -> Sequence[Finding]:
    """Whether each node's capacity is that of the cards it describes."""
    books = (await cluster.ledger()).cluster
    wrong: list[str] = []
    for stored in await cluster.nodes():
        for said in _said(books, stored.name):
            for resource in said.capacity:
                least, most = _amount(said.allocatable, resource), _amount(said.capacity, resource)
                wrong += _contradiction(stored, resource, least, most)
    if wrong:
        remedy = "restart the agent of the node, ours or the vendor's: kubelet may have reset what it published"
        return [warning(listed(wrong, 3), remedy)]
    return [ok("the capacity of every node is that of its cards")]


def _amount(amounts: Mapping[str, str], resource: str) -> int:
    return published(dict(amounts), resource)


def _contradiction(node: Node, resource: str, least: int, most: int) -> list[str]:
    """A capacity that is neither that of all cards nor of the healthy ones, nor in between."""
    if resource not in node.capacity or least <= published(node.capacity, resource) <= most:
        return []
    has = published(node.capacity, resource)
    return [f"{node.name} has a capacity of {has:,} {resource}, and describes cards with {most:,}"]


def _said(books: Books, name: str) -> Iterator[Published]:
    """What a node with these cards says in each language that it speaks."""
    node = books.snapshot.node(name)
    if node is not None and node.devices:
        for dialect in sorted(node.offers):
            yield books.interpreter.by_name[dialect].publish(node)
