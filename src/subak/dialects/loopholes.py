"""Ways around the limits of a slice.  A pod may not use them, unless the administrator allows it.

    privileged       a privileged container sees every card of its node
    disable-control  CUDA_DISABLE_CONTROL in a container's environment keeps the library out of it

Whoever has whole cards takes nothing from others.  Only HAMi refuses privileged containers beside whole cards too, and
so do we for its pods.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from subak.dialects.isolation import SWITCH
from subak.model import manifest
from subak.model.device import FPGA, FULL_CORES, RDMA
from subak.model.reason import Refusal
from subak.model.request import Claim

PRIVILEGED, DISABLE_CONTROL = "privileged", "disable-control"
LOOPHOLES = (PRIVILEGED, DISABLE_CONTROL)

_NO_CARDS = frozenset({RDMA, FPGA})


def check_loopholes(pod: manifest.Pod, claims: Sequence[Claim], allowed: Container[str]) -> None:
    """Raise Refusal if the pod uses a loophole that is not allowed."""
    if PRIVILEGED not in allowed and any(map(_forbids_privilege, claims)):
        for container, field in zip(pod.containers, pod.fields, strict=True):
            if container.security_context is not None and container.security_context.privileged:
                raise Refusal(
                    f"{field}.securityContext.privileged",
                    "true",
                    f"container {container.name} is privileged, so that no limit would hold: do not make it so",
                )
    if DISABLE_CONTROL not in allowed:
        for position in sorted({each for claim in claims if _is_slice(claim) for each in claim.containers}):
            _check_variables(pod.containers[position], pod.fields[position])


def _check_variables(container: manifest.Container, field: str) -> None:
    for number, variable in enumerate(container.env or ()):
        if variable.name == SWITCH:
            raise Refusal(
                f"{field}.env[{number}]",
                variable.value,
                f"container {container.name} sets {SWITCH}, which would lift the limits of its slice: remove it",
            )


def _forbids_privilege(claim: Claim) -> bool:
    return not claim.families <= _NO_CARDS and (not claim.idle or claim.dialect.startswith("hami-"))


def _is_slice(claim: Claim) -> bool:
    """Whether others may use the same cards."""
    alone = claim.idle or claim.memory_percent == 100 or (claim.slotted and claim.cores >= FULL_CORES)
    return not alone and not claim.families <= _NO_CARDS
