"""The controller: whether one of its replicas leads, what they say of themselves, and of which version they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from subak import __version__
from subak.doctor import Finding, failed, listed, ok, unknown, warning
from subak.doctor.cluster import AGENT, CONTROLLER, Cluster
from subak.doctor.cluster.objects import Ready, until
from subak.scheduler.configuration import NAMESPACE

LEASE, LEADER = "subak-controller", "leader"
PORT, AGENT_PORT = 9440, 9394
INSTALL = "kubectl apply -f deploy/manifests (docs/reference/controller.md)"
LOGS = f"kubectl logs -n {NAMESPACE} deployment/subak-controller"


async def leader(cluster: Cluster) -> Sequence[Finding]:
    """Whether a replica holds the Lease, and renews it."""
    if (await cluster.server()).embedded:
        return [ok("`subak up` schedules by itself")]
    lease = (await cluster.leases()).get(LEASE)
    place = f"Lease {NAMESPACE}/{LEASE}"
    if lease is None:
        said = await cluster.controller()
        if said is not None and said.role == LEADER:
            return [ok("the controller decides without a Lease (--no-leader-elect)")]
        return [failed(f"there is no {place}: no controller has run here, so pods with cards wait", INSTALL)]
    if not lease.spec.holder_identity:
        return [failed(f"nobody holds {place}: the controller has ended, so pods with cards wait", f"start it; {LOGS}")]
    late = await cluster.now() - until(lease)
    if late > 0:
        seen = f"{lease.spec.holder_identity} has not renewed {place} for {late:,.0f} s longer than it lasts"
        return [failed(f"{seen}: nobody places pods", f"see why no replica takes over: {LOGS}")]
    return [ok(f"{lease.spec.holder_identity} leads")]


async def replicas(cluster: Cluster) -> Sequence[Finding]:
    """Whether every replica is ready, and what does not work there."""
    if (await cluster.server()).embedded:
        return []
    pods = await cluster.ours(CONTROLLER)
    if not pods:
        return await _outside(cluster)
    findings: list[Finding] = []
    for pod in pods:
        name = pod["metadata"]["name"]
        if not _ready(pod):
            say = f"kubectl describe pod -n {NAMESPACE} {name}"
            findings.append(
                failed(f"pod {name} is not ready: {_why(pod)}", f"{say}; kubectl logs -n {NAMESPACE} {name}")
            )
            continue
        said = await cluster.readiness(f"pods/http:{name}:{PORT}")
        findings += [unknown(f"pod {name} does not answer at :{PORT}/readyz")] if said is None else _trouble(name, said)
    if len(pods) == 1 and not findings:
        seen = f"pod {pods[0]['metadata']['name']} is the only replica: while it is replaced, nobody places pods"
        return [warning(seen, f"kubectl scale -n {NAMESPACE} deployment/subak-controller --replicas=2")]
    return findings or [ok(f"{len(pods)} ready")]


async def _outside(cluster: Cluster) -> Sequence[Finding]:
    """The controller may run outside the cluster, where only its Lease tells of it."""
    said = await cluster.controller()
    if said is not None:
        return _trouble("the controller", said) or [ok("the controller answers")]
    remedy = f"ask it itself: curl HOST:{PORT}/readyz; or run it in the cluster: {INSTALL}"
    return [unknown(f"no pod of the controller is in {NAMESPACE}, and its Service leads nowhere", remedy)]


def _trouble(name: str, said: Ready) -> list[Finding]:
    """What a replica says does not work."""
    return [
        failed(f"{name}: {each}", f"see its log, which also names missing rights: {LOGS}") for each in said.problems
    ]


async def versions(cluster: Cluster) -> Sequence[Finding]:
    """Whether our programs are of one version, and of the same as this command."""
    if (await cluster.server()).embedded:
        return []
    known: dict[str, list[str]] = {}
    for component, port in ((CONTROLLER, PORT), (AGENT, AGENT_PORT)):
        for pod in await cluster.ours(component):
            name = pod["metadata"]["name"]
            said = await cluster.readiness(f"pods/http:{name}:{port}") if _ready(pod) else None
            known.setdefault((said and said.version) or _tag(pod), []).append(name)
    if not known and (said := await cluster.controller()) is not None and said.version:
        known[said.version] = ["the controller"]
    known.pop("", None)
    if not known:
        return [unknown("no program of ours tells its version")]
    if len(known) > 1:
        seen = "; ".join(f"{version}: {listed(names, 3)}" for version, names in sorted(known.items()))
        return [
            warning(f"several versions run: {seen}", "finish the update, or take it back: kubectl rollout status ...")
        ]
    (version,) = known
    if version != __version__:
        return [
            warning(f"they are {version}, this command is {__version__}", "use the same version: checks may differ")
        ]
    return [ok(version)]


def _ready(pod: dict[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _why(pod: dict[str, Any]) -> str:
    """What keeps a pod from being ready, in kubelet's words."""
    status = pod.get("status") or {}
    for each in status.get("containerStatuses") or ():
        detail = (each.get("state") or {}).get("waiting") or {}
        if detail.get("reason"):
            return f"{detail['reason']} {detail.get('message', '')}".strip()
    for each in status.get("conditions") or ():
        if each["status"] != "True" and each.get("message"):
            return str(each["message"])
    return f"it is {status.get('phase') or 'Pending'}"


def _tag(pod: dict[str, Any]) -> str:
    """The version that the pod's image is tagged with; empty if it is none."""
    image = str(pod["spec"]["containers"][0].get("image", ""))
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2].removeprefix("v")
    return tag if tag[:1].isdigit() else ""
