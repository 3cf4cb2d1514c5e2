from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from subak.local.kubelet.difference import OWNED, changes
from subak.local.kubelet.status import CONDITIONS as OWN_CONDITIONS
from tinykube.server import schema
from tinykube.server.kinds import POD
from tinykube.server.patch import strategic

Json = dict[str, Any]

CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["Ready", "Initialized", "example.com/other"]), "status": st.sampled_from("TF")},
        optional={"reason": st.sampled_from(["A", "B"]), "message": st.sampled_from(["a", "b"])},
    ),
    unique_by=lambda each: each["type"],
)
ADDRESSES = st.lists(st.fixed_dictionaries({"ip": st.sampled_from(["127.0.0.1", "::1"])}), min_size=1, max_size=1)
STATUSES = st.fixed_dictionaries(
    {"conditions": CONDITIONS},
    optional={
        "phase": st.sampled_from(["Pending", "Running"]),
        "message": st.sampled_from(["a", "b"]),
        "hostIPs": ADDRESSES,
        "podIPs": ADDRESSES,
        "containerStatuses": st.lists(st.fixed_dictionaries({"name": st.sampled_from("ab")}), min_size=1, max_size=2),
        "nominatedNodeName": st.just("other"),
    },
)


def own(status: Json) -> Json:
    return {name: status[name] for name in OWNED if name in status}


def by_type(status: Json, own: bool) -> dict[str, Json]:
    return {each["type"]: each for each in status["conditions"] if (each["type"] in OWN_CONDITIONS) is own}


@given(STATUSES, STATUSES)
def test_after_the_patch_the_server_has_what_is_said_and_what_others_wrote(there: Json, said: Json) -> None:
    patch = changes(there, said)
    after = strategic.apply({"status": there}, {"status": patch}, schema.of(POD))["status"]
    assert own(after) == own(said)
    assert by_type(after, own=True) == by_type(there, own=True) | by_type(said, own=True)
    assert by_type(after, own=False) == by_type(there, own=False)
    assert after.get("nominatedNodeName") == there.get("nominatedNodeName")
    assert changes(after, said) == {}


def test_what_a_server_adds_by_itself_is_no_difference() -> None:
    said = {"containerStatuses": [{"name": "a", "lastState": {"terminated": {"exitCode": 1}}}]}
    there = {
        "qosClass": "BestEffort",
        "message": "",
        "containerStatuses": [{"name": "a", "lastState": {"terminated": {"exitCode": 1, "startedAt": None}}}],
    }
    assert changes(there, said) == {}
