"""What Koordinator's pods ask for: legal combinations, the sum over containers, the portion of each card."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.koordinator_admission import fill, verify
from subak.dialects.koordinator_names import GPU_FAMILIES, SHARED, UNIT
from subak.dialects.koordinator_request import check, parts, peak, portions
from subak.model.device import FPGA, GPU, RDMA
from subak.model.reason import Refusal
from subak.model.request import Claim
from tests.dialects.koordinator_manifests import DIALECT, GI, SHORT, full, pod
from tinykube.quantity import Quantity

COMBINATION = "invalid resource device requests: "


def claims(request: str) -> tuple[Claim, ...]:
    return DIALECT.ask(pod(request)).claims


def amounts(short: str) -> dict[str, int]:
    return {name: Quantity.parse(text).integer() for name, text in full(short).items()}


@pytest.mark.parametrize(
    "request_",
    [
        "nv=2",
        "amd=1",
        "dcu=3",
        "gpu=200",
        "gpu=50",
        "mem=8Gi",
        "ratio=50",
        "ratio=200",
        "core=50 mem=8Gi",
        "core=200 mem=64Gi",
        "core=200 ratio=200",
        "ncore=40 ratio=200",
        "shared=2 mem=64Gi",
        "shared=2 ratio=100",
        "shared=2 ratio=200",
        "shared=1 core=100 mem=64Gi",
        "shared=2 core=100 mem=64Gi",
        "shared=2 core=100 ratio=100",
        "shared=1 ncore=4 ncpu=3 mem=12Gi",
        "shared=1 ncore=1 ncpu=1 ndvpp=12 mem=3Gi",
        "rdma=200",
        "fpga=50",
    ],
)
def test_legal_combinations_are_accepted(request_: str) -> None:
    assert claims(request_)


@pytest.mark.parametrize(
    "request_",
    [
        "core=101",
        "core=100",
        "nv=2 gpu=200 core=200 mem=32Gi ratio=200",
        "nv=1 core=50 ratio=50",
        "core=100 ratio=101",
        "core=101 mem=8Gi",
        "shared=1 ratio=101",
        "shared=2 ratio=101",
        "shared=2 core=51 ratio=100",
        "ncore=8",
        "ncore=40 mem=16Gi",
        "shared=1 ncore=8",
        "shared=1 ncore=10 mem=16Gi",
        "shared=2 ncore=1 ncpu=1 mem=3Gi",
        "shared=1 ncore=1 ncpu=1 ndvpp=101 mem=3Gi",
        "shared=1",
        "mem=8Gi ratio=50",
        "gpu=50 core=50",
        "koordinator.sh/gpu-mem=8Gi",
    ],
)
def test_other_combinations_are_refused_by_their_sorted_names(request_: str) -> None:
    with pytest.raises(Refusal) as refused:
        claims(request_)
    names = " ".join(sorted(full(request_)))
    assert refused.value.message.startswith(f"{COMBINATION}[{names}]; ")
    assert refused.value.field == "spec.containers[0].resources.requests"


@pytest.mark.parametrize(("short", "amount"), [("gpu", "101"), ("gpu", "150"), ("rdma", "201"), ("fpga", "201")])
def test_more_than_one_device_must_be_whole_devices(short: str, amount: str) -> None:
    with pytest.raises(Refusal) as refused:
        claims(f"{short}={amount}")
    assert refused.value.message.startswith(f"invalid resource unit {SHORT[short]}: {amount};")


def test_an_empty_request_means_nothing() -> None:
    with pytest.raises(Refusal, match="^pod request should not be empty$"):
        check({}, "spec")


def test_zeros_ask_for_nothing() -> None:
    asking_for_nothing = pod("core=0 ratio=0")
    assert DIALECT.ask(asking_for_nothing).claims == ()
    assert DIALECT.admit(asking_for_nothing).limits == {}


def test_the_remedy_names_what_is_missing() -> None:
    with pytest.raises(Refusal, match="give gpu-memory or gpu-memory-ratio beside it"):
        claims("core=50")
    with pytest.raises(Refusal, match="there is no koordinator.sh/gpu-mem"):
        claims("koordinator.sh/gpu-mem=1Gi")
    with pytest.raises(Refusal, match="vendor's name"):
        claims("nv=1 core=50 ratio=50")


def test_old_names_mean_the_same() -> None:
    old = "kubernetes.io/gpu-core=50 kubernetes.io/gpu-memory-ratio=50"
    assert claims(old) == claims("core=50 ratio=50")
    assert claims("dashed=1 core=50 ratio=50") == claims("shared=1 core=50 ratio=50")
    assert claims("kubernetes.io/rdma=100") == claims("rdma=100")


def test_two_names_for_one_thing_in_one_container_are_refused() -> None:
    with pytest.raises(Refusal, match="another name of koordinator.sh/gpu.shared"):
        claims("shared=1 dashed=1 ratio=50")


def test_an_amount_that_is_no_number_is_refused_by_its_field() -> None:
    with pytest.raises(Refusal) as refused:
        claims("core=half ratio=50")
    assert refused.value.field == "spec.containers[0].resources.requests[koordinator.sh/gpu-core]"
    with pytest.raises(Refusal, match="negative"):
        claims("core=-50 ratio=50")
    with pytest.raises(Refusal, match="whole"):
        claims("core=1.5 ratio=50")


@pytest.mark.parametrize(
    ("request_", "count", "cores", "ratio", "memory"),
    [
        ("nv=2", 2, 100, 100, 0),
        ("gpu=50", 1, 50, 50, 0),
        ("gpu=200", 2, 100, 100, 0),
        ("shared=1 core=50 ratio=50", 1, 50, 50, 0),
        ("core=200 ratio=200", 2, 100, 100, 0),
        ("ncore=16 ratio=200", 2, 8, 100, 0),
        ("shared=4 mem=160G", 4, 0, 0, 40 * 10**9),
        ("core=200 mem=64Gi", 1, 200, 0, 64 * GI),
        ("ratio=100", 1, 0, 100, 0),
        ("rdma=100", 1, 100, 0, 0),
        ("rdma=400", 4, 100, 0, 0),
        ("fpga=50", 1, 50, 0, 0),
    ],
)
def test_amounts_are_split_evenly(request_: str, count: int, cores: int, ratio: int, memory: int) -> None:
    (claim,) = claims(request_)
    assert (claim.count, claim.cores, claim.memory_percent, claim.memory_bytes) == (count, cores, ratio, memory)
    assert claim.granule == 1


def test_ascend_amounts_ride_along() -> None:
    (claim,) = claims("shared=1 mem=3221225472 ncore=1 ncpu=1 ndvpp=12")
    assert (claim.count, claim.memory_bytes, claim.cores) == (1, 3 * GI, 1)
    assert claim.extras == (("huawei.com/npu-cpu", 1), ("huawei.com/npu-dvpp", 12))
    assert claim.families == {"huawei"}


def test_only_all_of_a_card_demands_an_idle_one() -> None:
    assert {
        text: claims(text)[0].idle for text in ("nv=1", "gpu=100", "ratio=100", "core=50 ratio=100", "rdma=100")
    } == {
        "nv=1": True,
        "gpu=100": True,
        "ratio=100": False,
        "core=50 ratio=100": False,
        "rdma=100": False,
    }


def test_the_name_tells_the_vendor() -> None:
    families = {text: claims(text)[0].families for text in ("nv=1", "amd=1", "dcu=1", "ncore=8 ratio=100", "rdma=1")}
    assert families == {
        "nv=1": {"nvidia"},
        "amd=1": {"amd"},
        "dcu=1": {"hygon"},
        "ncore=8 ratio=100": {"huawei"},
        "rdma=1": {"rdma"},
    }
    assert claims("mem=8Gi")[0].families == GPU_FAMILIES - {"cambricon"}, "its agent wants cores"
    assert claims("core=5 mem=8Gi")[0].families == GPU_FAMILIES - {"huawei"}, "5 % is not 5 of an Ascend card's cores"


def test_memory_too_small_to_divide_is_refused() -> None:
    with pytest.raises(Refusal, match="counts bytes: 1 over 2 cards"):
        claims("shared=2 mem=1")


def test_gpu_rdma_and_fpga_are_claims_of_their_own() -> None:
    asked = claims("core=50 ratio=50 rdma=100 fpga=100")
    assert [sorted(claim.families)[0] for claim in asked[1:]] == ["rdma", "fpga"]
    assert asked[0].cores == 50


def test_the_pod_is_summed_as_kubernetes_does() -> None:
    busy = pod(
        "core=10 ratio=10",
        "core=20 ratio=20",
        "",
        sidecars=["core=5 ratio=5"],
        init=["core=40 ratio=10"],
        overhead="ratio=1",
    )
    assert peak(busy, parts(busy)) == amounts("core=45 ratio=36")
    (claim,) = DIALECT.ask(busy).claims
    assert claim.containers == (0, 1, 2, 3), "all that ask: sidecar, init container and two of three"


def test_an_error_of_several_containers_names_none_of_them() -> None:
    with pytest.raises(Refusal) as refused:
        DIALECT.ask(pod("mem=8Gi", "ratio=50"))
    assert refused.value.field == "spec.containers[*].resources.requests"


@given(st.lists(st.sampled_from(sorted({*SHORT} - {"dashed"})), min_size=1, unique=True), st.data())
def test_whatever_is_asked_is_a_claim_or_a_refusal(names: list[str], data: st.DataObject) -> None:
    values = [data.draw(st.integers(0, 500)) for _ in names]
    asking = pod(" ".join(f"{name}={value}" for name, value in zip(names, values, strict=True)))
    try:
        found = portions(asking, parts(asking))
    except Refusal:
        return
    total = peak(asking, parts(asking))
    for portion in found.values():
        assert portion.count >= 1
        assert portion.ratio <= 100
        assert portion.count * portion.memory_bytes <= total[SHORT["mem"]]
    assert set(found) <= {GPU, RDMA, FPGA}


@pytest.mark.parametrize(
    ("written", "added"),
    [
        ("core=100 mem=4000 ratio=50", "shared=1"),
        ("core=100 mem=8000 ratio=200", "shared=2"),
        ("gpu=200", "core=200 ratio=200 shared=2"),
        ("gpu=70", "core=70 ratio=70 shared=1"),
        ("mem=8Gi", "shared=1"),
        ("core=200 mem=32Gi", "shared=2"),
        ("shared=2 ratio=100", ""),
        ("ncore=16 ratio=200", ""),
        ("ncore=1 ncpu=1 mem=3Gi", "shared=1"),
        ("nv=1", ""),
        ("rdma=100", ""),
        ("core=0 ratio=0", ""),
    ],
)
def test_admission_says_over_how_many_cards(written: str, added: str) -> None:
    assert fill(amounts(written)) == amounts(added)


@pytest.mark.parametrize(
    "written", ["gpu=200", "gpu=70", "shared=1 ncore=8", "nv=1", "", "shared=2 core=100 ratio=100", "core=0 ratio=0"]
)
def test_amounts_that_agree_pass(written: str) -> None:
    verify(amounts(written), "f")


@pytest.mark.parametrize(
    ("written", "value", "message"),
    [
        ("gpu=100 shared=1", "", "Forbidden declare GPU and GPU share at same time"),
        ("gpu=0", "0", "the requested GPU must be greater than zero"),
        ("shared=0 ratio=50", "0", "the requested GPU must be greater than zero"),
        ("gpu=101", "101", "the requested GPU must be percentage of 100"),
        ("shared=1", "", "GPU memory and GPU memory ratio all is zero"),
        ("core=50", "", "GPU memory and GPU memory ratio all is zero"),
        ("mem=4000 ratio=100 shared=1", "", "declare GPU memory and GPU memory ratio at same time"),
        ("mem=4000 ratio=50", "", "declare GPU memory and GPU memory ratio at same time"),
        ("core=101 ratio=100 shared=2", "101", "the requested gpuCore must multiple of shared"),
        ("ratio=101 shared=2", "101", "the requested gpuMemoryRatio must multiple of shared"),
        ("gpu=100 core=50", "koordinator.sh/gpu=100, koordinator.sh/gpu-core=50", COMBINATION.strip()),
    ],
)
def test_amounts_that_contradict_are_refused_at_admission(written: str, value: str, message: str) -> None:
    with pytest.raises(Refusal) as refused:
        DIALECT.admit(pod(written))
    assert refused.value.message.startswith(message)
    assert refused.value.value == value
    assert refused.value.field.startswith("spec.containers[0].resources.requests")


def test_a_part_of_an_ascend_card_fails_by_its_combination_not_by_the_share_checks() -> None:
    with pytest.raises(Refusal, match=r"invalid resource device requests: .*npu-core with gpu-memory-ratio"):
        DIALECT.admit(pod("shared=1 ncore=8"))


def test_the_shorthand_is_replaced_in_the_spelling_that_was_used() -> None:
    for name in (UNIT, "kubernetes.io/gpu"):
        patch = DIALECT.admit(pod("", f"{name}=200"))
        assert patch.limits == {1: full("core=200 ratio=200 shared=2")}
        assert patch.remove == {1: [name]}


def test_the_dashed_name_counts_as_said() -> None:
    assert DIALECT.admit(pod("dashed=1 core=50 ratio=50")).limits == {}


def test_init_containers_are_left_as_they_are() -> None:
    patch = DIALECT.admit(pod("core=50 ratio=50", init=["core=50 ratio=50"]))
    assert patch.limits == {1: {SHARED: "1"}}


def test_two_containers_that_ask_for_a_part_make_a_pod_of_two_cards() -> None:
    """Koordinator's webhook adds one gpu.shared to each, and the sum counts."""
    both = "core=50 ratio=50 shared=1"
    assert DIALECT.admit(pod("core=50 ratio=50", "core=50 ratio=50")).limits == {0: {SHARED: "1"}, 1: {SHARED: "1"}}
    (claim,) = DIALECT.ask(pod(both, both)).claims
    assert (claim.count, claim.cores, claim.memory_percent) == (2, 50, 50)
