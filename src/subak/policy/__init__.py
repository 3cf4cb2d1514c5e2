"""Pure decisions: which node and which cards, or why none.  This file states what a policy is.

    place(request) ── rows of cached scores, without nodes that `Across` refuses, those that a `Preference` likes first
                   ──> best node ── on_node ──> Placement
    on_node        ── for each claim: order cards ── refuse or pass each (`fit`) ── pick among those that pass

There are four kinds of policy.  Each is an object with a name; `policy.registry` lists them all.  A new one is one
file and one line there.

    Filter      keeps pods off nodes.  One that looks at other nodes too is `Across`: events keep its counters.
    NodeScore   the best node.  A request names its score (`Request.node_policy`).
    Preference  what users would rather have.  It comes before the score, and depends on other nodes.
    CardPick    which of the cards that fit.  A claim names its pick (`CardPolicy.pick`).

A filter and a score have a form for one node, which is easy to read, and one in columns, for thousands of nodes at
once.  Both must say the same; where the second is left out, the first is asked node by node.

Pods come in shapes: those of one shape share cached scores, and wait together once refused.  A shape is a `Request`.
So a policy that reads more of a pod than its request must say so in `reads`.  What it reads may depend on other pods:
if it would read more of a pod than before, it begins another `Snapshot.epoch`.

What vendors add about their own cards is no policy: see `model.rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Protocol

from subak.model import manifest
from subak.model.card import CardState
from subak.model.node import Node
from subak.model.placement import Grant
from subak.model.reason import NodeRefusal
from subak.model.request import Claim, Request
from subak.snapshot.pool import Bools, Column, Pool, Verdicts
from subak.snapshot.scores import Where
from subak.snapshot.watcher import Change, Watcher


class Filter(Protocol):
    """Keeps pods off nodes by what the nodes' descriptions say; what is free there is another matter.

    A change of the description is the only cure, and everybody who waits is measured by it then.
    """

    name: str
    """Unique among filters and scores."""

    def reads(self, pod: manifest.Pod) -> Hashable | None:
        """What it reads of the pod besides its request: `request.read(self.name)` gives it back.  None for nothing."""
        return None

    def key(self, request: Request) -> Hashable:
        """All that it reads of the request: requests with equal keys share its verdicts."""
        return request.read(self.name)

    def refuse(self, node: Node, request: Request) -> NodeRefusal | None:
        """Why the node is out; None if it is not."""

    def verdicts(self, pool: Pool, request: Request) -> Verdicts:
        """What `refuse` says to all nodes of a pool."""
        return pool.verdicts((self.name, self.key(request)), partial(self.refuse, request=request))


class Across(Filter, Watcher, Protocol):
    """A filter that also depends on other nodes and on the pods there.

    Every cluster has one object of the class, which sees pods and nodes come and go and counts what it needs.  It has a
    say about the pods of which it `reads` something.  It is asked anew for every decision, so that no cached score
    remembers its answer.
    """

    cures: frozenset[Change]
    """After which events, anywhere in the cluster, a refused pod is worth another try."""

    def cured_by(self, request: Request) -> frozenset[Hashable]:
        """The same for one request, which may also name changes that a watcher notes itself (`Snapshot.note`)."""
        return frozenset(self.cures)

    def verdicts(self, pool: Pool, request: Request) -> Verdicts:
        """What `refuse` says to all nodes now.  `Verdicts.of` makes it from columns."""
        return pool.judged(partial(self.refuse, request=request))


class NodeScore(Protocol):
    """What a node is worth to a pod: the highest wins, the first by name among equals."""

    name: str
    """Unique among filters and scores."""

    def reads(self, pod: manifest.Pod) -> Hashable | None:
        """As `Filter.reads`."""
        return None

    def score(self, node: Node, cards: Sequence[CardState], request: Request, grants: Sequence[Grant]) -> int:
        """The score of one node.  `cards` are as they were before; `grants` tell how they would be after the pod."""

    def column(self, pool: Pool, request: Request) -> Callable[[Where], Column] | None:
        """The scores of many nodes.  None if they depend on the grants: then every node that may fit is tried."""
        return None


class Preference(Watcher, Protocol):
    """What makes some nodes better than others for a pod, whatever their cards.  It refuses none.

    Points go from 0 to 100 and are weighed.  Where preferences concern a pod, the highest sum wins, and the `NodeScore`
    decides among equals.  Every cluster has one object of the class, as of `Across`.
    """

    name: str
    """Unique among all policies."""

    weight: int
    """How much it counts beside other preferences."""

    def reads(self, pod: manifest.Pod) -> Hashable | None:
        """As `Filter.reads`."""
        return None

    def concerns(self, request: Request) -> bool:
        """Whether it has anything to say about the request now."""
        return request.read(self.name) is not None

    def points(self, request: Request, among: Mapping[Pool, Bools]) -> Mapping[Pool, Column]:
        """The points of the nodes of these pools, position by position.

        `among` are the nodes that no filter refuses, whether their cards are free or not: they make the scale.
        """


class CardPick(Protocol):
    """As many of the passing cards (best first) as the claim asks for; none if they do not lie together as they must.

    `cards` are all cards of the node that the claim could mean.  There is no form in columns: cards are picked on one
    node.
    """

    def __call__(
        self, passed: Sequence[CardState], claim: Claim, cards: Sequence[CardState], node_policy: str
    ) -> list[CardState]:
        """The cards to take."""
