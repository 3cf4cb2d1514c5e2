"""What the cluster is told to do: the device config, and which names of schedulers are ours."""

from __future__ import annotations

from collections.abc import Sequence

from subak.doctor import Finding, failed, listed, ok, warning
from subak.doctor.cluster import Cluster
from subak.doctor.cluster.objects import Lease, until
from subak.scheduler.configuration import in_force
from subak.scheduler.served import NAMES, OWN_LEASES
from tinykube.resource import LEASES


async def names(cluster: Cluster) -> Sequence[Finding]:
    """Which names of schedulers are left to others, because their own scheduler holds its Lease."""
    if (await cluster.server()).embedded:
        return []
    found: list[Finding] = []
    now = await cluster.now()
    living: dict[str, str] = {}
    for name in NAMES:
        if name not in OWN_LEASES:
            continue
        for lease in await _named(cluster, OWN_LEASES[name]):
            if lease.spec.holder_identity and until(lease) > now:
                living[name] = f"{lease.metadata.namespace}/{lease.metadata.name} ({lease.spec.holder_identity})"
    for name, held in living.items():
        seen = f"pods of scheduler {name} are left to it: it holds Lease {held}"
        found.append(warning(seen, "if Subak is to place them, remove that scheduler; if not, this is as it should be"))
    said = await cluster.controller()
    if said is not None and said.served:
        return found or [ok(f"served: {listed(said.served)}")]
    return found or [ok("no other scheduler holds a Lease of a name that Subak serves")]


async def _named(cluster: Cluster, name: str) -> list[Lease]:
    """The Leases of that name, in all namespaces."""
    listing = await cluster.client.list(LEASES, fields=f"metadata.name={name}", strict=False, type=Lease)
    return listing.items


async def config(cluster: Cluster) -> Sequence[Finding]:
    """Whether the device config that the cluster publishes can be read."""
    try:
        await in_force(cluster.client)
    except ValueError as error:
        return [failed(str(error), "correct it; the controller does not start with it, and commands read pods wrongly")]
    return [ok("the device config can be read")]
