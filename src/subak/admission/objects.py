"""The objects by which an API server knows of us, generated from the device config.

    MutatingWebhookConfiguration      new pods that ask for cards are completed and sent to our scheduler
    ValidatingWebhookConfiguration    new pods that ask for cards, or carry records, are reviewed
    ValidatingAdmissionPolicy         records are guarded in every write (`policy`)
    ValidatingAdmissionPolicyBinding  everywhere

Pods that are none of our business never wait for the webhook: `matchConditions` say which are (`scope`).  The others
are refused while it is down.  Pods that only carry records are then refused by the policy, in our words, since policies
come before validating webhooks: for such pods the mutating webhook is not asked.

Every field that the API server would fill in is named, so that what is there can be compared with what should be.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from subak.admission import policy
from subak.admission.records import Writers
from subak.admission.review import WEBHOOK
from subak.admission.scope import IGNORE, OPT_OUT, Scope
from tinykube.resource import Resource

Json = dict[str, Any]

NAME = "subak"
MUTATING = Resource(
    policy.GROUP, "v1", "mutatingwebhookconfigurations", namespaced=False, kind="MutatingWebhookConfiguration"
)
VALIDATING = Resource(
    policy.GROUP, "v1", "validatingwebhookconfigurations", namespaced=False, kind="ValidatingWebhookConfiguration"
)
MUTATE, VALIDATE = "/mutate", "/validate"
TIMEOUT_SECONDS = 10
LABELS = {"app.kubernetes.io/managed-by": "subak"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object as it should be: its name, and the fields that are ours."""

    resource: Resource
    name: str
    content: Mapping[str, Any]

    def body(self) -> Json:
        """The whole object."""
        metadata = {"name": self.name, "labels": LABELS}
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": metadata,
            **self.content,
        }

    def holds(self, found: Mapping[str, Any]) -> bool:
        """Whether the object is as it should be."""
        return all(found.get(field) == value for field, value in self.content.items())


@dataclass(frozen=True, slots=True)
class Address:
    """Where the API server finds the webhook: a Service of its cluster, or a URL."""

    namespace: str
    service: str
    url: str = ""

    def client(self, path: str, bundle: str) -> Json:
        """A `clientConfig` that trusts a bundle of authorities, PEM in base64."""
        if self.url:
            return {"url": self.url.rstrip("/") + path, "caBundle": bundle}
        service = {"namespace": self.namespace, "name": self.service, "path": path, "port": 443}
        return {"service": service, "caBundle": bundle}


def policies(scope: Scope, writers: Writers) -> list[Wanted]:
    """The guard of records, which needs no webhook."""
    return [
        Wanted(policy.POLICIES, policy.NAME, {"spec": policy.policy(scope.owned, writers)}),
        Wanted(policy.POLICY_BINDINGS, policy.NAME, {"spec": policy.binding()}),
    ]


def webhooks(scope: Scope, address: Address, bundle: str) -> list[Wanted]:
    """Both webhooks."""
    mutating = {
        **_webhook(scope.reviewed(), address.client(MUTATE, bundle)),
        "reinvocationPolicy": "IfNeeded",
    }
    validating = _webhook(f"({scope.reviewed()}) || ({scope.recorded()})", address.client(VALIDATE, bundle))
    return [
        Wanted(VALIDATING, NAME, {"webhooks": [validating]}),
        Wanted(MUTATING, NAME, {"webhooks": [mutating]}),
    ]


def authorities(configuration: Mapping[str, Any] | None) -> str:
    """The authorities that a configuration of ours tells the API server to trust, PEM."""
    for webhook in (configuration or {}).get("webhooks") or ():
        if webhook["name"] == WEBHOOK:
            return b64decode(webhook["clientConfig"].get("caBundle") or "").decode(errors="replace")
    return ""


def _webhook(condition: str, client: Json) -> Json:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    opted_out = [{"key": key, "operator": "NotIn", "values": [IGNORE]} for key in OPT_OUT]
    return {
        "name": WEBHOOK,
        "clientConfig": client,
        "rules": [{**rule, "scope": "Namespaced"}],
        "matchConditions": [{"name": "our-business", "expression": condition}],
        "matchPolicy": "Equivalent",
        "failurePolicy": "Fail",
        # Only administrators label namespaces, so there the label holds for everything but records.
        "namespaceSelector": {"matchExpressions": opted_out},
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1"],
    }
