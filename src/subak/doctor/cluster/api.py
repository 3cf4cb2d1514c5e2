"""The API server: which version it is, what time it has, and who we are to it."""

from __future__ import annotations

from collections.abc import Sequence

from subak.doctor import Finding, failed, ok, unknown, warning
from subak.doctor.cluster import Cluster
from subak.doctor.examine import ALLOW
from tinykube.resource import NODES, PODS, Resource

OLDEST = (1, 30)
"""Policies that the API server evaluates itself, by which records are guarded, are there since 1.30."""
LATE, TOO_LATE = 2.0, 10.0
"""Seconds by which clocks may differ; an agent that is late by half a Lease of 15 s soon seems dead."""

SELF_REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", namespaced=False)
ACCESS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)


async def version(cluster: Cluster) -> Sequence[Finding]:
    """Whether the API server has what we need."""
    server = await cluster.server()
    if server.embedded:
        return [ok(f"{server.version}, the cluster of `subak up`")]
    if server.number is None:
        return [unknown(f"{server.version!r} is no version that we can read")]
    if server.number < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        seen = f"{server.version}: records of allocations are not guarded while the controller is down"
        return [warning(seen, f"upgrade to Kubernetes {oldest} or later, which has ValidatingAdmissionPolicy")]
    return [ok(server.version)]


async def clock(cluster: Cluster) -> Sequence[Finding]:
    """Whether this computer and the API server have the same time, as far as its answers tell."""
    ahead = (await cluster.server()).ahead
    return [told_apart(ahead)]


def told_apart(ahead: float) -> Finding:
    """What it means if the API server's clock is ahead by so many seconds."""
    if abs(ahead) <= LATE:
        return ok("the API server and this computer have the same time")
    which = "behind" if ahead > 0 else "ahead of"
    seen = f"this computer's clock is {abs(ahead):,.0f} s {which} the API server's"
    remedy = "set it by NTP (timedatectl set-ntp true): Leases are compared by the clock"
    return failed(seen, remedy) if abs(ahead) > TOO_LATE else warning(seen, remedy)


async def user(cluster: Cluster) -> Sequence[Finding]:
    """Who we are, and whether we see what decides about pods."""
    who = "you"
    answer = await cluster.client.create(SELF_REVIEWS, {"apiVersion": SELF_REVIEWS.api_version})
    who = str(answer["status"]["userInfo"].get("username", who))
    blind = [str(each) for each in (NODES, PODS) if not await _may_list(cluster, each)]
    if blind:
        return [unknown(f"{who} may not list {' and '.join(blind)} of the whole cluster", ALLOW)]
    return [ok(f"{who} sees all nodes and pods")]


async def _may_list(cluster: Cluster, resource: Resource) -> bool:
    wanted = {"verb": "list", "group": resource.group, "resource": resource.plural}
    question = {"apiVersion": ACCESS.api_version, "spec": {"resourceAttributes": wanted}}
    return bool((await cluster.client.create(ACCESS, question))["status"].get("allowed"))
