"""Admission: whether the API server asks our webhook, gets an answer, and guards records by itself.

The objects are compared with what this version would write.  Two things follow from the options of the controller and
are taken as they are found: where the webhook is, and who else may write records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cryptography import x509

from subak.admission import objects, policy
from subak.admission.certificates import BadSecret, read
from subak.admission.objects import MUTATING, VALIDATING, Address
from subak.admission.owned import Owned
from subak.admission.review import WEBHOOK
from subak.admission.scope import Scope
from subak.admission.service import NAMESPACE, WRITERS
from subak.dialects.interpreter import Interpreter
from subak.doctor import CannotTell, Finding, failed, ok, unknown, warning
from subak.doctor.cluster import Cluster
from subak.scheduler.configuration import in_force
from subak.scheduler.served import NAMES
from tinykube.resource import PODS, SECRETS, Resource
from tinykube.status import ApiError

Json = dict[str, Any]

REWRITE = "the controller that leads puts it right: see whether one leads, and its log"
NONSENSE = {"volcano.sh/gpu-memory": "1", "koordinator.sh/gpu-core": "1"}
"""The same cards in two languages, whose names no device config changes: admission refuses that."""
FORGED = {"volcano.sh/gpu-index": "0"}
"""The record of an allocation, which nobody may create a pod with."""


async def webhooks(cluster: Cluster) -> Sequence[Finding]:
    """Whether both webhooks are there, as this version writes them."""
    if (await cluster.server()).embedded:
        return [ok("`subak up` reviews pods inside its API server")]
    interpreter = await _interpreter(cluster)
    said = await cluster.controller()
    schedulers = tuple(said.served) if said is not None and said.served else NAMES
    scope = Scope(interpreter.resources, Owned.by(interpreter), schedulers)
    findings: list[Finding] = []
    for resource in (MUTATING, VALIDATING):
        found = await _find(cluster, resource, objects.NAME)
        if found is None:
            seen = f"there is no {resource.kind} {objects.NAME}: new pods are not reviewed"
            findings.append(failed(seen, f"{REWRITE}; it writes them in a pod, and with --webhook-url"))
            continue
        (wanted,) = (each for each in objects.webhooks(scope, *_address(found)) if each.resource == resource)
        if not wanted.holds(found):
            fields = _differing(wanted.content["webhooks"][0], (found.get("webhooks") or [{}])[0])
            seen = f"{resource.kind} {objects.NAME} differs in {', '.join(fields)}"
            if said is None and fields == ["webhooks[0].matchConditions"]:
                # They name the schedulers that are served, which an option of the controller may change.
                findings.append(unknown(f"{seen}; which names are served is not known: the controller does not answer"))
            else:
                findings.append(warning(seen, REWRITE))
    return findings or [ok("both webhooks are as this version writes them")]


async def certificates(cluster: Cluster) -> Sequence[Finding]:
    """Whether the API server trusts what the webhook presents, for as long as that is good."""
    if (await cluster.server()).embedded:
        return []
    now = datetime.fromtimestamp(await cluster.now(), UTC)
    trusted = [objects.authorities(await _find(cluster, each, objects.NAME)) for each in (MUTATING, VALIDATING)]
    if not all(trusted):
        return []  # the check of the webhooks tells that they are not there
    good = [_living(text, now) for text in trusted]
    if not all(good):
        seen = "all authorities in caBundle have expired: the API server does not trust the webhook"
        return [failed(seen, f"{REWRITE}; it makes a new certificate when two thirds of the old one's life are over")]
    until = min(max(each.not_valid_after_utc for each in bundle) for bundle in good)
    return [await _in_secret(cluster, trusted) or ok(f"trusted until {until:%Y-%m-%d %H:%M} UTC")]


async def _in_secret(cluster: Cluster, trusted: Sequence[str]) -> Finding | None:
    """What is wrong with the Secret, as far as the user may read it; few may, and they need not."""
    place = f"secret {NAMESPACE}/subak-webhook"
    try:
        known = read((await cluster.client.get(SECRETS, "subak-webhook", NAMESPACE)).get("data"))
    except ApiError as error:
        if error.code == 404:
            return failed(f"there is no {place}, which holds the webhook's certificate", REWRITE)
        return None
    except BadSecret as error:
        return failed(f"{place}: {error}", f"delete it, and the controller makes a new one: kubectl delete {place} ...")
    if not any(all(each.authority in bundle for bundle in trusted) for each in known):
        return failed(f"caBundle holds no authority of {place}: the API server does not trust the webhook", REWRITE)
    return None


async def answers(cluster: Cluster) -> Sequence[Finding]:
    """Whether a new pod that asks for nonsense is refused in our words; it is a dry run."""
    error = await _tried(cluster, _pod(limits=NONSENSE))
    where = f"a pod with the same cards in two languages, tried in namespace {cluster.namespace},"
    if error is None:
        seen = f"{where} is accepted: the API server does not ask the webhook"
        return [failed(seen, "see the check of the webhooks; the namespace may be labelled hami.io/webhook=ignore")]
    if f'admission webhook "{WEBHOOK}" denied the request' in error.message:
        return [ok("a pod that asks for nonsense is refused, with the reason (dry run)")]
    if "failed calling webhook" in error.message:
        seen = f"the API server cannot ask the webhook, so no pod with cards can be created: {error.message}"
        remedy = f"see whether a replica is ready, and whether the API server reaches Service {NAMESPACE}/subak-webhook"
        return [failed(seen, remedy)]
    return [unknown(f"{where} is refused by somebody else: {error.message}", "try another namespace with -n")]


async def records(cluster: Cluster) -> Sequence[Finding]:
    """Whether the policy that guards records is there, bound, and as this version writes it."""
    server = await cluster.server()
    if server.embedded:
        return [ok("`subak up` guards records inside its API server")]
    interpreter = await _interpreter(cluster)
    found = await _find(cluster, policy.POLICIES, policy.NAME)
    bound = await _find(cluster, policy.POLICY_BINDINGS, policy.NAME)
    if found is None or bound is None:
        missing = policy.POLICIES if found is None else policy.POLICY_BINDINGS
        seen = f"there is no {missing.kind} {policy.NAME}: anybody who may write pods can forge allocations"
        return [failed(seen, f"{REWRITE}; it needs Kubernetes 1.30 or later")]
    if bound["spec"] != policy.binding():
        return [failed(f"{policy.POLICY_BINDINGS.kind} {policy.NAME} does not hold everywhere", REWRITE)]
    wanted, there = policy.policy(Owned.by(interpreter), WRITERS), dict(found["spec"])
    left_out = [name for name in WRITERS.everywhere if f'"{name}"' not in str(there.get("matchConditions"))]
    if left_out:
        seen = f"{', '.join(left_out)} is none of the writers of records"
        return [warning(seen, "bindings of a controller in the cluster would be refused: start it again")]
    fields = [field for field in wanted if field != "matchConditions" and wanted[field] != there.get(field)]
    if fields:
        return [warning(f"the policy differs in spec.{', spec.'.join(fields)}", REWRITE)]
    return [ok("the policy is as this version writes it, and bound everywhere")]


async def guarded(cluster: Cluster) -> Sequence[Finding]:
    """Whether a new pod with a forged record is refused; it is a dry run."""
    error = await _tried(cluster, _pod(annotations=FORGED))
    if error is None:
        seen = "a pod that brings the record of an allocation along is accepted"
        return [failed(seen, "see the check of the policy; until then pods can pretend to hold cards")]
    if "records an allocation" in error.message or f'"{WEBHOOK}" denied' in error.message:
        return [ok("a pod with a forged record is refused (dry run)")]
    if "failed calling webhook" in error.message:
        return [ok("a pod with a forged record is refused, since the webhook cannot be asked (dry run)")]
    return [unknown(f"a pod with a forged record is refused by somebody else: {error.message}", "try -n NAMESPACE")]


async def _tried(cluster: Cluster, pod: Json) -> ApiError | None:
    """The refusal of a pod, which is not stored in any case.  Raises CannotTell if the user may not create any."""
    try:
        await cluster.client.create(PODS, pod, cluster.namespace, dry_run=True)
    except ApiError as error:
        if error.code == 403 and 'cannot create resource "pods"' in error.message:
            remedy = "use a namespace where you may create pods: subak doctor -n NAMESPACE"
            raise CannotTell(error.message, remedy) from None
        if error.code == 404:
            raise CannotTell(error.message, "name a namespace that is there: subak doctor -n NAMESPACE") from None
        return error
    return None


def _pod(limits: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None) -> Json:
    container = {"name": "c", "image": "none", "resources": {"limits": dict(limits or {})}}
    metadata = {"generateName": "subak-doctor-", "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


async def _interpreter(cluster: Cluster) -> Interpreter:
    try:
        return Interpreter(await in_force(cluster.client))
    except ValueError as error:
        raise CannotTell(f"the device config cannot be read: {error}", "correct it first") from None


async def _find(cluster: Cluster, resource: Resource, name: str) -> Json | None:
    try:
        return await cluster.client.get(resource, name)
    except ApiError as error:
        if error.code != 404:
            raise
        return None


def _address(found: Json) -> tuple[Address, str]:
    """Where a configuration says that the webhook is, and whom to trust there."""
    client = ((found.get("webhooks") or [{}])[0]).get("clientConfig") or {}
    service = client.get("service") or {}
    url = str(client.get("url") or "").rpartition("/")[0]
    return Address(service.get("namespace", ""), service.get("name", ""), url), client.get("caBundle", "")


def _differing(wanted: Json, found: Json) -> list[str]:
    return [
        f"webhooks[0].{field}"
        for field in sorted(wanted.keys() | found.keys())
        if wanted.get(field) != found.get(field)
    ]


def _living(bundle: str, now: datetime) -> list[x509.Certificate]:
    """The authorities of a bundle that have not expired."""
    try:
        known = x509.load_pem_x509_certificates(bundle.encode())
    except ValueError:
        return []
    return [each for each in known if each.not_valid_after_utc > now]
