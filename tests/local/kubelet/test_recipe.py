from __future__ import annotations

from typing import Any

import pytest

from subak.dialects import Injection
from subak.local.kubelet.recipe import recipe
from subak.local.runtime.launcher.kernel import CAPABILITIES
from subak.local.runtime.spec import Spec
from tests.support.kubelet.pods import container, pod


def made(**context: Any) -> Spec:
    """The recipe of a container with this security context."""
    each = pod(container(command=["true"], securityContext=context))
    return recipe(each, each.spec.containers[0], {}, Injection(), (), False, None, 0)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({}, set(CAPABILITIES)),
        ({"drop": ["ALL"]}, set()),
        ({"drop": ["all"], "add": ["CAP_CHOWN", "SYS_ADMIN"]}, {"CHOWN"}),
        ({"drop": ["CAP_KILL", "NET_RAW"]}, set(CAPABILITIES) - {"KILL"}),
        ({"add": ["ALL"], "drop": ["SETUID"]}, set(CAPABILITIES) - {"SETUID"}),
    ],
)
def test_a_container_gives_up_the_capabilities_that_it_says(said: dict[str, Any], kept: set[str]) -> None:
    assert set(made(capabilities=said).capabilities) == kept


def test_a_container_gives_up_its_private_layer_if_it_says_so() -> None:
    assert made(readOnlyRootFilesystem=True).read_only
    assert not made().read_only
