"""All plugins and actions, by the names that configurations use; and how a session runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subak.batch import Hand, Plugin
from subak.batch.actions.allocate import allocate
from subak.batch.actions.backfill import backfill
from subak.batch.actions.enqueue import enqueue
from subak.batch.actions.preempt import preempt
from subak.batch.actions.reclaim import reclaim
from subak.batch.arguments import Arguments
from subak.batch.configuration import Configuration
from subak.batch.plugins.binpack import Binpack
from subak.batch.plugins.conformance import Conformance
from subak.batch.plugins.deviceshare import DeviceShare
from subak.batch.plugins.drf import Drf
from subak.batch.plugins.gang import Gang
from subak.batch.plugins.nodeorder import NodeOrder
from subak.batch.plugins.overcommit import Overcommit
from subak.batch.plugins.predicates import Predicates
from subak.batch.plugins.priority import Priority
from subak.batch.plugins.proportion import Proportion
from subak.batch.refusals import Refusals
from subak.batch.session import Action, Leaving, Session
from subak.batch.world import World
from subak.dialects.interpreter import Interpreter
from subak.policy.budgets import Budgets
from subak.policy.decider import Decider

_PLUGINS: tuple[type[Plugin], ...] = (
    *(Priority, Gang, Conformance, Overcommit, Drf, Predicates, Proportion, NodeOrder, Binpack, DeviceShare),
)

PLUGINS: Mapping[str, type[Plugin]] = {each.name: each for each in _PLUGINS}

ACTIONS: Mapping[str, Action] = {
    "enqueue": enqueue,
    "allocate": allocate,
    "backfill": backfill,
    "preempt": preempt,
    "reclaim": reclaim,
}


def run(
    world: World,
    decider: Decider,
    configuration: Configuration,
    hand: Hand,
    pods: Leaving,
    now: float = 0.0,
    refused: Refusals | None = None,
    budgets: Budgets | None = None,
    most: int | None = None,
) -> Session:
    """Run all actions of a configuration once; the session tells what it found."""
    session = Session(world, decider, configuration, PLUGINS, hand, pods, now, refused, budgets, most)
    for name in configuration.actions:
        ACTIONS[name](session, Arguments(configuration.arguments.get(name, {}), f"action {name}", session.doubts))
    return session


def doubts(configuration: Configuration) -> list[str]:
    """What plugins and actions find wrong with their arguments: they say so in a session without jobs."""
    nobody: Any = None  # there is nothing to carry out, and nobody leaves
    return run(World(), Decider(Interpreter()), configuration, nobody, nobody).doubts
