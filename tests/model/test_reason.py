"""Reasons: the names that HAMi's users know, and what would cure each."""

from __future__ import annotations

import pytest

from subak.model.reason import Cure, Reason, Refusal

OF_HAMI = (
    *("CardNotHealth", "CardUnhealthy", "CardCordoned", "CardTypeMismatch", "CardUuidMismatch"),
    *("CardAppClassMismatch", "CardQosPolicyMismatch", "CardTimeSlicingExhausted", "CardInsufficientMemory"),
    *("CardInsufficientCore", "CardComputeUnitsExhausted", "ExclusiveDeviceAllocateConflict"),
    *("CardNotFoundCustomFilterRule", "CardMigTopologyInfeasible", "NumaNotFit"),
    *("AllocatedCardsInsufficientRequest", "NodeInsufficientDevice", "ResourceQuotaNotFit"),
)


@pytest.mark.parametrize("name", OF_HAMI)
def test_hamis_names_are_kept(name: str) -> None:
    assert str(Reason(name)) == name


def test_names_are_unique_and_of_one_form() -> None:
    names = [str(reason) for reason in Reason]
    assert len(set(names)) == len(names)
    assert all(name[0].isupper() and name.isalnum() for name in names)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_can_be_cured(reason: Reason) -> None:
    assert reason.cures


@pytest.mark.parametrize(
    ("reason", "cures"),
    [
        (Reason.CARD_INSUFFICIENT_MEMORY, {Cure.POD_GONE, Cure.NODE_CHANGED}),
        (Reason.CARD_TIME_SLICING_EXHAUSTED, {Cure.POD_GONE, Cure.NODE_CHANGED}),
        (Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT, {Cure.POD_GONE, Cure.NODE_CHANGED}),
        (Reason.NODE_INSUFFICIENT_RESOURCE, {Cure.POD_GONE, Cure.NODE_CHANGED}),
        (Reason.NUMA_NOT_FIT, {Cure.POD_GONE, Cure.NODE_CHANGED}),
        (Reason.CARD_NOT_HEALTH, {Cure.NODE_CHANGED}),
        (Reason.CARD_TYPE_MISMATCH, {Cure.NODE_CHANGED}),
        (Reason.CARD_UUID_MISMATCH, {Cure.NODE_CHANGED}),
        (Reason.NODE_TAINT_NOT_TOLERATED, {Cure.NODE_CHANGED}),
        (Reason.NODE_UNREGISTERED, {Cure.NODE_CHANGED}),
        (Reason.NODE_AGENT_DEAD, {Cure.NODE_CHANGED}),
        (Reason.NODE_INSUFFICIENT_DEVICE, {Cure.NODE_CHANGED}),
        (Reason.RESOURCE_QUOTA_NOT_FIT, {Cure.QUOTA_CHANGED}),
        (Reason.NOT_SUPPORTED_YET, {Cure.POD_CHANGED}),
    ],
)
def test_a_waiting_pod_is_tried_again_when_its_reason_may_be_gone(reason: Reason, cures: set[Cure]) -> None:
    assert reason.cures == cures


def test_a_refusal_names_field_value_and_message() -> None:
    refusal = Refusal("spec.x", 5, "x is 5: give 6")
    assert (refusal.field, refusal.value, refusal.message, str(refusal)) == ("spec.x", "5", *["x is 5: give 6"] * 2)
    assert Refusal("spec.x", None, "x is missing").value == ""
    assert Refusal("spec.x", 0, "x is 0").value == "0"
