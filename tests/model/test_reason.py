"""Reasons: the names that HAMi's users know."""

from __future__ import annotations

import pytest

from subak.model.reason import Reason, Refusal

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


def test_a_refusal_names_field_value_and_message() -> None:
    refusal = Refusal("spec.x", 5, "x is 5: give 6")
    assert (refusal.field, refusal.value, refusal.message, str(refusal)) == ("spec.x", "5", *["x is 5: give 6"] * 2)
    assert Refusal("spec.x", None, "x is missing").value == ""
    assert Refusal("spec.x", 0, "x is 0").value == "0"
