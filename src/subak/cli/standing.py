"""How queues stand, from the objects of a cluster: for who cannot ask the controller, and for `subak up`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from subak.batch.configuration import DEFAULT, Configuration
from subak.batch.dimensions import Dimensions
from subak.batch.overview import look
from subak.batch.parser import parse
from subak.batch.session import Session
from subak.batch.world import Status
from subak.cli.live import Picture, all_of
from subak.model import manifest
from subak.model.group import GROUPS, PRIORITY_CLASSES, QUEUES, Group, PriorityClass, Queue
from subak.model.reason import Refusal
from subak.model.request import Request
from subak.scheduler import served
from subak.scheduler.batch_configuration import KEY, USUAL
from subak.scheduler.configuration import ConfigMap
from subak.scheduler.jobs import Jobs, governed
from subak.scheduler.messages import AskOwner
from tinykube.client import Client
from tinykube.resource import CONFIG_MAPS
from tinykube.status import ApiError


async def standing(client: Client, now: Picture) -> tuple[Session, list[str]]:
    """A session of what the objects say, and what is wrong with them.

    Raises Blind if the user may not see queues and groups.
    """
    configuration, queues, classes, *groups = await asyncio.gather(
        _configuration(client),
        all_of(client, QUEUES, Queue),
        all_of(client, PRIORITY_CLASSES, PriorityClass),
        *(all_of(client, resource, kind) for resource, kind in GROUPS.items()),
    )
    jobs = Jobs(Dimensions(now.cluster.interpreter, now.cluster.snapshot))
    for each in classes:
        jobs.see_class(each)
    for each in queues:
        jobs.see_queue(each)
    known = {each.key: each for found in groups for each in (one.as_group() for one in found)}
    for group in known.values():
        jobs.see_group(group)
    _see_pods(jobs, now, now.pods.values())
    for ask in jobs.asking:
        if not isinstance(ask, AskOwner):
            continue
        made = known.get(f"{ask.namespace}/podgroup-{ask.uid}", Group(words="", key=""))
        _see_pods(jobs, now, [now.pods[key] for key in jobs.see_owner(ask.uid, made.min_member)])
    return look(jobs.world, now.cluster, configuration), jobs.warnings


async def _configuration(client: Client) -> Configuration:
    """The scheduler configuration that is written; the default if there is none, or it is not valid."""
    try:
        found = await client.get(CONFIG_MAPS, USUAL.name, USUAL.namespace, type=ConfigMap)
        return parse((found.data or {})[KEY], KEY)
    except ApiError as error:
        if error.code not in (403, 404):
            raise
    except (KeyError, ValueError):
        pass
    return DEFAULT


def _see_pods(jobs: Jobs, now: Picture, pods: Iterable[manifest.Pod]) -> None:
    dimensions = Dimensions(now.cluster.interpreter, now.cluster.snapshot)
    for pod in pods:
        try:
            if served.on_one_machine(pod) and governed(pod):
                request = Request() if pod.finished else now.cluster.request(pod)
                amounts = {} if pod.finished else dimensions.held(pod.key) or dimensions.asked(request)
                jobs.see(pod, request, amounts, _status(pod), pod.spec.node_name)
        except Refusal:
            continue  # it is told so itself


def _status(pod: manifest.Pod) -> Status:
    if pod.finished:
        return Status.SUCCEEDED if pod.status.phase == "Succeeded" else Status.FAILED
    if not pod.spec.node_name:
        return Status.PENDING
    if pod.metadata.deletion_timestamp is not None:
        return Status.RELEASING
    return Status.RUNNING if pod.status.phase == "Running" else Status.BOUND
