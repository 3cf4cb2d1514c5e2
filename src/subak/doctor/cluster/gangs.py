"""Gangs and queues: whether the scheduler configuration can be read, and whether what pods name is there."""

from __future__ import annotations

from collections.abc import Sequence

from subak.batch import gangs
from subak.batch.parser import parse
from subak.doctor import Finding, failed, listed, ok, warning
from subak.doctor.cluster import Cluster
from subak.model.group import QUEUES, VOLCANO_GROUPS, Queue, VolcanoGroup, Words
from subak.model.reason import Refusal
from subak.scheduler.batch_configuration import KEY, NAME, NAMESPACE
from subak.scheduler.configuration import ConfigMap
from tinykube.resource import CONFIG_MAPS
from tinykube.status import ApiError

PLACE = f"configmap {NAMESPACE}/{NAME}"
INSTALL = "install Volcano's CustomResourceDefinitions, podgroups and queues of scheduling.volcano.sh"


async def configuration(cluster: Cluster) -> Sequence[Finding]:
    """Whether the scheduler configuration can be read, and what of it has no effect."""
    try:
        found = await cluster.client.get(CONFIG_MAPS, NAME, NAMESPACE, type=ConfigMap)
    except ApiError as error:
        if error.code != 404:
            raise
        return [ok("there is none, so Volcano's default is in force")]
    text = (found.data or {}).get(KEY)
    if text is None:
        return [warning(f"{PLACE} has no key {KEY}, so Volcano's default is in force", "write it there")]
    try:
        read = parse(text, PLACE)
    except ValueError as error:
        return [failed(str(error), "correct it; until then the one before is in force, or Volcano's default")]
    return [warning(f"{PLACE}: {each}", "remove or correct it") for each in read.warnings] or [ok("it can be read")]


async def objects(cluster: Cluster) -> Sequence[Finding]:
    """Whether the PodGroups and queues are there that waiting pods name in Volcano's words."""
    named: dict[str, list[str]] = {}
    for key, pod in (await cluster.ledger()).pods.items():
        try:
            said = gangs.membership(pod)
        except Refusal:
            continue  # its user was told
        if said is not None and said.words == Words.VOLCANO and not pod.spec.node_name:
            named.setdefault(said.name, []).append(key)
    try:
        groups = await cluster.client.list(VOLCANO_GROUPS, strict=False, type=VolcanoGroup)
        queues = await cluster.client.list(QUEUES, strict=False, type=Queue)
    except ApiError as error:
        if error.code != 404:
            raise
        if named:
            return [
                failed(f"pods name PodGroups, which the API server does not know: {listed(sorted(named))}", INSTALL)
            ]
        return [ok("Volcano's kinds are not installed, and no pod needs them")]
    known = {group.key: group for group in groups.items}
    standing = {queue.name for queue in queues.items}
    findings = [
        failed(f"PodGroup {name} does not exist, and {_wait(len(pods))} for it", "create it, or correct their group")
        for name, pods in sorted(named.items())
        if name not in known
    ]
    lost = sorted({group.spec.queue for group in known.values()} - standing - {"", "default"})
    findings += [
        failed(f"queue {name} does not exist, and PodGroups name it", "create it, or name another one") for name in lost
    ]
    return findings or [ok(f"{len(known):,} PodGroups in {len(standing):,} queues")]


def _wait(count: int) -> str:
    return "1 pod waits" if count == 1 else f"{count:,} pods wait"
