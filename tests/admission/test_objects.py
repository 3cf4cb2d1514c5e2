"""The objects for the API server follow from the device config and the options; `tests/e2e` shows that they work."""

from __future__ import annotations

import json

from subak.admission import cel, objects, policy
from subak.admission.owned import Owned
from subak.admission.records import Writers
from subak.admission.scope import Scope
from subak.dialects.config import Config
from subak.dialects.interpreter import Interpreter

ADDRESS = objects.Address("subak-system", "subak-webhook")
WRITERS = Writers(frozenset({"the-scheduler"}), frozenset({"the-agents"}))


def scope(interpreter: Interpreter) -> Scope:
    return Scope(interpreter.resources, Owned.by(interpreter), ("subak",))


def conditions(found: list[objects.Wanted]) -> list[str]:
    return [each.content["webhooks"][0]["matchConditions"][0]["expression"] for each in found]


def test_resources_that_have_other_names_are_ours_under_these() -> None:
    renamed = Interpreter(Config.of({"nvidia": {"resourceCountName": "example.com/vgpu"}}))
    for text in conditions(objects.webhooks(scope(renamed), ADDRESS, "")):
        assert '"example.com/vgpu"' in text
    for text in conditions(objects.webhooks(scope(Interpreter()), ADDRESS, "")):
        assert '"example.com/vgpu"' not in text


def test_every_key_of_a_dialect_is_guarded() -> None:
    ours = scope(Interpreter())
    text = json.dumps(policy.policy(ours.owned, WRITERS))
    for key in (*ours.owned.annotations, *ours.owned.labels):
        assert key.removesuffix("*") in text
        assert key.removesuffix("*") in ours.recorded()


def test_a_key_that_is_reserved_is_guarded_like_any_other() -> None:
    owned = Owned(frozenset({"required-plugins.noderesource.dev*"}), frozenset())
    pod = {"metadata": {"annotations": {"required-plugins.noderesource.dev/pod": "none", "note": "mine"}}}
    assert list(owned.among(pod)) == [("annotations", "required-plugins.noderesource.dev/pod")]
    assert 'startsWith("required-plugins.noderesource.dev")' in Scope(frozenset(), owned, ()).recorded()


def test_writers_are_named_in_the_policy() -> None:
    (_, user) = policy.policy(Owned.by(Interpreter()), WRITERS)["matchConditions"]
    everywhere, _, own_node = user["expression"].partition("nodeName")
    assert '"the-scheduler"' in everywhere
    assert '"the-agents"' in own_node
    assert '"the-agents"' not in everywhere


def test_an_address_is_a_service_or_a_url() -> None:
    assert ADDRESS.client("/mutate", "Q0E=") == {
        "service": {"namespace": "subak-system", "name": "subak-webhook", "path": "/mutate", "port": 443},
        "caBundle": "Q0E=",
    }
    elsewhere = objects.Address("", "", "https://10.0.0.1:9443/")
    assert elsewhere.client("/mutate", "Q0E=") == {"url": "https://10.0.0.1:9443/mutate", "caBundle": "Q0E="}


def test_texts_in_cel_are_quoted() -> None:
    assert cel.texts(["b", 'a"\\\n']) == r'["a\"\\\n", "b"]'
