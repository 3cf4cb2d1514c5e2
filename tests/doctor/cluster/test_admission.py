"""Admission: what the API server is told, and what it does."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest

from subak.admission import certificates, objects, policy
from subak.admission.objects import MUTATING, VALIDATING, Address
from subak.admission.owned import Owned
from subak.admission.records import Writers
from subak.admission.scope import Scope
from subak.admission.service import WRITERS
from subak.dialects.interpreter import Interpreter
from subak.doctor import CannotTell, Level
from subak.doctor.cluster import Cluster, admission
from subak.scheduler.served import NAMES
from tests.doctor.canned import SUBAK, VERSION, Answer, Canned, forbidden
from tests.doctor.cluster.worlds import NOW, found, levels, nothing
from tinykube.client import Client
from tinykube.status import ApiError

INTERPRETER = Interpreter()
GENERATION = certificates.make(frozenset({"a"}), NOW, timedelta(days=90))
PODS = "POST /api/v1/namespaces/default/pods"
SECRET = f"GET {SUBAK}/secrets/subak-webhook"


def webhooks(*generations: certificates.Generation) -> dict[str, Any]:
    """Both configurations, as a controller with a Service writes them, by path."""
    scope = Scope(INTERPRETER.resources, Owned.by(INTERPRETER), NAMES)
    address = Address("subak-system", "subak-webhook")
    made = objects.webhooks(scope, address, certificates.bundle(generations or (GENERATION,)))
    return {f"GET {each.resource.path('', each.name)}": deepcopy(each.body()) for each in made}


def policies(writers: Writers = WRITERS) -> dict[str, Any]:
    made = objects.policies(Scope(INTERPRETER.resources, Owned.by(INTERPRETER), NAMES), writers)
    return {f"GET {each.resource.path('', each.name)}": deepcopy(each.body()) for each in made}


def refusing(message: str, code: int = 403) -> dict[str, Answer]:
    return {PODS: ApiError(code, "Forbidden", message)}


async def test_webhooks_as_this_version_writes_them() -> None:
    assert levels(await found(admission.webhooks, webhooks())) == [Level.OK]


async def test_webhooks_at_a_url() -> None:
    there = webhooks()
    for each in there.values():
        each["webhooks"][0]["clientConfig"].pop("service")
        path = "/mutate" if each["kind"] == MUTATING.kind else "/validate"
        each["webhooks"][0]["clientConfig"]["url"] = f"https://10.0.0.1:9443{path}"
    assert levels(await found(admission.webhooks, there)) == [Level.OK]


async def test_webhooks_that_are_not_there_or_were_changed() -> None:
    findings = await found(admission.webhooks, {})
    assert levels(findings) == [Level.FAILED, Level.FAILED]
    changed = webhooks()
    changed[f"GET {VALIDATING.path('', 'subak')}"]["webhooks"][0]["failurePolicy"] = "Ignore"
    (finding,) = await found(admission.webhooks, changed)
    assert finding.level is Level.WARNING
    assert finding.seen == "ValidatingWebhookConfiguration subak differs in webhooks[0].failurePolicy"


async def test_names_that_are_served_come_from_the_controller() -> None:
    """A controller for fewer names writes other conditions; only it can tell which are right."""
    scope = Scope(INTERPRETER.resources, Owned.by(INTERPRETER), ("subak",))
    made = objects.webhooks(scope, Address("subak-system", "subak-webhook"), certificates.bundle([GENERATION]))
    there: dict[str, Answer] = {f"GET {each.resource.path('', each.name)}": each.body() for each in made}
    assert levels(await found(admission.webhooks, there)) == [Level.UNKNOWN, Level.UNKNOWN]
    window = f"GET {SUBAK}/services/subak-controller:http/proxy/readyz"
    assert levels(await found(admission.webhooks, there | {window: {"served": ["subak"]}})) == [Level.OK]
    assert levels(await found(admission.webhooks, there | {window: {"served": ["volcano"]}})) == [Level.WARNING] * 2


async def test_certificates_that_are_trusted_expired_or_others() -> None:
    blind: dict[str, Answer] = {SECRET: forbidden("secrets")}  # as for nearly everybody
    (finding,) = await found(admission.certificates, webhooks() | blind)
    assert (finding.level, finding.seen) == (Level.OK, "trusted until 2027-02-14 12:00 UTC")
    old = certificates.make(frozenset({"a"}), NOW - timedelta(days=100), timedelta(days=90))
    (finding,) = await found(admission.certificates, webhooks(old))
    assert "have expired" in finding.seen
    assert levels(await found(admission.certificates, webhooks(old, GENERATION) | blind)) == [Level.OK]
    (finding,) = await found(admission.certificates, webhooks())
    assert "there is no secret subak-system/subak-webhook" in finding.seen


async def test_the_secret_holds_what_the_api_server_trusts() -> None:
    other = certificates.make(frozenset({"a"}), NOW, timedelta(days=90))
    mine: dict[str, Answer] = {SECRET: {"data": certificates.written([GENERATION])}}
    theirs: dict[str, Answer] = {SECRET: {"data": certificates.written([other])}}
    assert levels(await found(admission.certificates, webhooks() | mine)) == [Level.OK]
    (finding,) = await found(admission.certificates, webhooks() | theirs)
    assert "caBundle holds no authority" in finding.seen
    (finding,) = await found(admission.certificates, webhooks() | {SECRET: {"data": {"tls.crt": "eA=="}}})
    assert (finding.level, "secret subak-system/subak-webhook" in finding.seen) == (Level.FAILED, True)


@pytest.mark.parametrize(
    ("message", "level", "words"),
    [
        ('admission webhook "pods.subak.io" denied the request: keep to one', Level.OK, "is refused, with the reason"),
        ('failed calling webhook "pods.subak.io": refused', Level.FAILED, "no pod with cards can be created"),
        ("exceeded quota: pods", Level.UNKNOWN, "by somebody else: exceeded quota"),
    ],
)
async def test_how_a_pod_with_nonsense_is_answered(message: str, level: Level, words: str) -> None:
    (finding,) = await found(admission.answers, refusing(message))
    assert finding.level is level
    assert words in finding.seen


async def test_nonsense_that_is_accepted() -> None:
    (finding,) = await found(admission.answers, {PODS: {"metadata": {"name": "x"}}})
    assert finding.level is Level.FAILED
    (finding,) = await found(admission.guarded, {PODS: {"metadata": {"name": "x"}}})
    assert finding.level is Level.FAILED


async def test_a_user_who_may_not_create_pods_is_told_of_namespaces() -> None:
    with pytest.raises(CannotTell) as told:
        await found(admission.answers, refusing('User "jane" cannot create resource "pods" in API group ""'))
    assert "-n NAMESPACE" in told.value.remedy
    with pytest.raises(CannotTell):
        await found(admission.guarded, refusing('namespaces "default" not found', 404))


async def test_nothing_is_stored() -> None:
    way = Canned({"GET /version": VERSION, PODS: {}})
    for check in (admission.answers, admission.guarded):
        await check(Cluster(Client(way), nothing))
    assert [each.query.get("dryRun") for each in way.asked if each.method == "POST"] == ["All", "All"]


async def test_the_policy_with_writers_that_the_administrator_added() -> None:
    assert levels(await found(admission.records, policies())) == [Level.OK]
    more = Writers(WRITERS.everywhere | {"system:serviceaccount:kube-system:hami-scheduler"}, WRITERS.on_own_node)
    assert levels(await found(admission.records, policies(more))) == [Level.OK]


async def test_a_policy_that_does_not_guard() -> None:
    (finding,) = await found(admission.records, {})
    assert "anybody who may write pods can forge allocations" in finding.seen
    unbound = policies()
    unbound.pop(f"GET {policy.POLICY_BINDINGS.path('', policy.NAME)}")
    (finding,) = await found(admission.records, unbound)
    assert "there is no ValidatingAdmissionPolicyBinding" in finding.seen
    audit = policies()
    audit[f"GET {policy.POLICY_BINDINGS.path('', policy.NAME)}"]["spec"]["validationActions"] = ["Audit"]
    assert levels(await found(admission.records, audit)) == [Level.FAILED]
    changed = policies()
    changed[f"GET {policy.POLICIES.path('', policy.NAME)}"]["spec"]["validations"] = []
    (finding,) = await found(admission.records, changed)
    assert (finding.level, finding.seen) == (Level.WARNING, "the policy differs in spec.validations")
    (finding,) = await found(admission.records, policies(Writers(frozenset({"jane"}))))
    assert "subak-controller is none of the writers" in finding.seen
