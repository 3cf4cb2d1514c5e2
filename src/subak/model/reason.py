"""Why something was refused.  Every refusal in Subak is one of these, never a bare False.

The names are the ones HAMi's users know from events; the ones HAMi lacks follow the same pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """The closed list of reasons.  The first part speaks of cards, the second of nodes, the last of the pod."""

    CARD_NOT_HEALTH = "CardNotHealth"
    CARD_UNHEALTHY = "CardUnhealthy"
    CARD_CORDONED = "CardCordoned"
    CARD_TYPE_MISMATCH = "CardTypeMismatch"
    CARD_UUID_MISMATCH = "CardUuidMismatch"
    CARD_APP_CLASS_MISMATCH = "CardAppClassMismatch"
    CARD_QOS_POLICY_MISMATCH = "CardQosPolicyMismatch"
    CARD_POD_GROUP_CONFLICT = "CardPodGroupConflict"
    CARD_TIME_SLICING_EXHAUSTED = "CardTimeSlicingExhausted"
    CARD_INSUFFICIENT_MEMORY = "CardInsufficientMemory"
    CARD_INSUFFICIENT_CORE = "CardInsufficientCore"
    CARD_INSUFFICIENT_EXTRA = "CardInsufficientExtra"
    CARD_COMPUTE_UNITS_EXHAUSTED = "CardComputeUnitsExhausted"
    EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT = "ExclusiveDeviceAllocateConflict"
    CARD_NOT_FOUND_CUSTOM_FILTER_RULE = "CardNotFoundCustomFilterRule"
    CARD_MIG_TOPOLOGY_INFEASIBLE = "CardMigTopologyInfeasible"
    CARD_TEMPLATE_MISMATCH = "CardTemplateMismatch"
    CARD_VIRTUAL_FUNCTIONS_EXHAUSTED = "CardVirtualFunctionsExhausted"
    NUMA_NOT_FIT = "NumaNotFit"
    CARD_PARTITION_MISSING = "CardPartitionMissing"
    CARD_PARTITION_NOT_FREE = "CardPartitionNotFree"
    CARD_PCIE_ROOT_MISMATCH = "CardPcieRootMismatch"
    ALLOCATED_CARDS_INSUFFICIENT_REQUEST = "AllocatedCardsInsufficientRequest"

    NODE_INSUFFICIENT_DEVICE = "NodeInsufficientDevice"
    NODE_UNREGISTERED = "NodeUnregistered"
    NODE_AGENT_DEAD = "NodeAgentDead"
    NODE_WITHOUT_NRI = "NodeWithoutNRI"
    NODE_NOT_READY = "NodeNotReady"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    NODE_TAINT_NOT_TOLERATED = "NodeTaintNotTolerated"
    NODE_SELECTOR_MISMATCH = "NodeSelectorMismatch"
    NODE_INSUFFICIENT_RESOURCE = "NodeInsufficientResource"
    NODE_ISOLATION_MISSING = "NodeIsolationMissing"
    POD_AFFINITY_MISMATCH = "PodAffinityMismatch"
    POD_ANTI_AFFINITY_MISMATCH = "PodAntiAffinityMismatch"
    EXISTING_PODS_ANTI_AFFINITY = "ExistingPodsAntiAffinity"
    TOPOLOGY_SPREAD_MISMATCH = "TopologySpreadMismatch"
    HOST_PORT_TAKEN = "HostPortTaken"

    VOLUME_CLAIM_NOT_READY = "VolumeClaimNotReady"
    VOLUME_NODE_CONFLICT = "VolumeNodeConflict"
    VOLUME_ZONE_CONFLICT = "VolumeZoneConflict"
    VOLUME_NOT_AVAILABLE = "VolumeNotAvailable"
    VOLUME_INSUFFICIENT_CAPACITY = "VolumeInsufficientCapacity"
    VOLUME_LIMIT_REACHED = "VolumeLimitReached"
    VOLUME_IN_USE = "VolumeInUse"

    RESOURCE_QUOTA_NOT_FIT = "ResourceQuotaNotFit"
    NOT_SUPPORTED_YET = "NotSupportedYet"


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Why a node is out: a `Reason` or a filter's own word for it, and the detail that a person wants to read."""

    reason: str
    detail: str


class Refusal(ValueError):
    """A pod that cannot mean anything: the field, its value, what is wrong and what would be right.

    `cause` is a word by which such refusals are counted; empty where nobody counts them.
    """

    def __init__(self, field: str, value: object, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.value = "" if value is None else str(value)
        self.message = message
        self.cause = cause


class NotReady(Refusal):
    """A pod with which nothing is wrong: its node cannot set it up now, as on a full disk, and may be asked again."""
