"""Rights: whether the accounts of our programs may do what the manifests of this version let them do.

Each right is put to the API server as a SubjectAccessReview, so whatever gives it counts: our own roles, or others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from subak.doctor import Finding, failed, listed, ok, unknown
from subak.doctor.cluster import Cluster
from subak.doctor.manifests import Right, folder, rights
from tinykube.resource import SERVICE_ACCOUNTS, Resource
from tinykube.status import ApiError

REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
AT_ONCE = 16
APPLY = "kubectl apply -f deploy/manifests, of the same version as the program"


async def accounts(cluster: Cluster) -> Sequence[Finding]:
    """Whether each account that is there has all of its rights."""
    if (await cluster.server()).embedded:
        return []
    wanted = rights(folder())
    if not wanted:
        return [unknown(f"there are no manifests at {folder()}", "install subak again")]
    findings = [await _account(cluster, *account, needed) for account, needed in sorted(wanted.items())]
    present = [each for each in findings if each is not None]
    return present or [failed(f"none of the accounts is there: {listed([name for _, name in wanted])}", APPLY)]


async def _account(cluster: Cluster, namespace: str, name: str, needed: Sequence[Right]) -> Finding | None:
    """What an account lacks; None if it is not there, as where the program is not used."""
    try:
        await cluster.client.get(SERVICE_ACCOUNTS, name, namespace)
    except ApiError as error:
        if error.code == 404:
            return None
        if error.code != 403:
            raise
    allowed = await _allowed(cluster, namespace, name, needed)
    missing = [right for right, may in zip(needed, allowed, strict=True) if not may]
    account = f"ServiceAccount {namespace}/{name}"
    if missing:
        return failed(f"{account} may not {listed(_said(missing))}", APPLY)
    return ok(f"{account} has its {len(set(needed))} rights")


async def _allowed(cluster: Cluster, namespace: str, name: str, needed: Sequence[Right]) -> list[bool]:
    user = f"system:serviceaccount:{namespace}:{name}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(right: Right) -> bool:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "name": right.name,
            "namespace": right.namespace,
        }
        spec = {"user": user, "groups": groups, "resourceAttributes": attributes}
        async with turns:
            answer = await cluster.client.create(REVIEWS, {"apiVersion": REVIEWS.api_version, "spec": spec})
        return bool(answer["status"].get("allowed"))

    return list(await asyncio.gather(*map(ask, needed)))


def _said(rights: Sequence[Right]) -> list[str]:
    """Rights as people say them: `get/list/watch pods`."""
    verbs: dict[str, dict[str, None]] = {}
    for right in rights:
        verbs.setdefault(right.object, {})[right.verb] = None
    return [f"{'/'.join(several)} {object}" for object, several in verbs.items()]
