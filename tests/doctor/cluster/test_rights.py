"""Rights of our programs' accounts."""

from __future__ import annotations

from typing import Any

from subak.doctor import Level
from subak.doctor.cluster import rights
from tests.doctor.canned import SUBAK, Answer
from tests.doctor.cluster.worlds import found

REVIEW = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews"
ACCOUNT = f"GET {SUBAK}/serviceaccounts/subak-controller"


def lacking(*resources: str) -> dict[str, Answer]:
    """An API server that refuses the controller these resources."""

    def review(question: dict[str, Any]) -> dict[str, Any]:
        asked = question["spec"]["resourceAttributes"]
        assert question["spec"]["user"].startswith("system:serviceaccount:subak-system:")
        whole = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        return {"status": {"allowed": whole not in resources}}

    return {ACCOUNT: {"metadata": {"name": "subak-controller"}}, REVIEW: review}


async def test_an_account_with_all_its_rights() -> None:
    (finding,) = await found(rights.accounts, lacking())
    assert finding.level is Level.OK
    assert finding.seen.startswith("ServiceAccount subak-system/subak-controller has its ")


async def test_missing_rights_are_named_as_people_say_them() -> None:
    (finding,) = await found(rights.accounts, lacking("pods/binding", "poddisruptionbudgets"))
    assert finding.level is Level.FAILED
    assert finding.seen == (
        "ServiceAccount subak-system/subak-controller may not list/watch poddisruptionbudgets, create pods/binding"
    )
    assert "kubectl apply -f deploy/manifests" in finding.remedy


async def test_no_account_at_all() -> None:
    (finding,) = await found(rights.accounts, {})
    assert finding.level is Level.FAILED
    assert "none of the accounts is there" in finding.seen
