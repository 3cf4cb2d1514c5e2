"""What the runtime is told of an injection, and which changes by others are noticed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from subak.dialects import Injection
from subak.model import mount
from subak.node.nri.adjust import adjustment, difference, hidden
from subak.node.nri.messages import NO_ADJUSTMENT, Adjustment, Container, DeviceNode, Mount

SHOWN = "NVIDIA_VISIBLE_DEVICES"
GIVEN = adjustment(
    Injection(
        env={SHOWN: "GPU-0", "CUDA_DEVICE_MEMORY_LIMIT_0": "10m"},
        mounts=[
            mount.Mount("/etc/subak/limits", "/run/subak/limits/u_c", read_only=True),
            mount.Mount("/usr/local/vgpu", "/usr/local/vgpu/containers/u_c"),
        ],
        devices=["/dev/null"],
    ),
    Container("id", "s", "c"),
)
CARDS = {"GPU-0", "GPU-1", "/dev/null", "/dev/zero"}
NAMES = st.sampled_from([SHOWN, "CUDA_DEVICE_MEMORY_LIMIT_0", f"-{SHOWN}", "OTHER"])
PATHS = st.sampled_from(["/etc/subak/limits", "/etc//subak/limits", "-/etc/subak/limits", "/usr/local/vgpu", "/opt"])
OTHERS = st.builds(
    Adjustment,
    st.lists(st.tuples(NAMES, st.sampled_from(["GPU-0", "all", ""])), max_size=2).map(tuple),
    st.lists(st.builds(Mount, PATHS, st.just("bind"), st.just("/evil")), max_size=2).map(tuple),
    st.lists(st.builds(DeviceNode, st.sampled_from(["/dev/null", "/dev/zero", "/dev/fuse"])), max_size=1).map(tuple),
    st.lists(st.sampled_from(["nvidia.com/gpu=GPU-1", "vendor.com/nic=0"]), max_size=1).map(tuple),
)


def touches_ours(other: Adjustment) -> bool:
    """Whether another plugin's part changes what we give, or shows a card."""
    names = {SHOWN, "CUDA_DEVICE_MEMORY_LIMIT_0"}
    return bool(
        names & {name.removeprefix("-") for name, _ in other.env}
        or {each.destination for each in other.mounts} - {"/opt"}
        or CARDS & {each.path for each in other.devices}
        or "nvidia.com/gpu=GPU-1" in other.cdi
    )


@given(OTHERS, st.booleans())
def test_others_may_add_what_is_theirs_and_nothing_that_is_ours(other: Adjustment, first: bool) -> None:
    one, two = (other, GIVEN) if first else (GIVEN, other)
    final = Adjustment(one.env + two.env, one.mounts + two.mounts, one.devices + two.devices, one.cdi + two.cdi)
    assert bool(difference(GIVEN, final, CARDS)) == touches_ours(other)


@given(st.data())
def test_whatever_is_missing_of_ours_is_noticed(data: st.DataObject) -> None:
    part = data.draw(st.sampled_from(["env", "mounts", "devices"]))
    items = list(getattr(GIVEN, part))
    del items[data.draw(st.integers(0, len(items) - 1))]
    assert difference(GIVEN, replace(GIVEN, **{part: tuple(items)}), CARDS)


def test_mounts_keep_their_rights() -> None:
    limits, own = GIVEN.mounts
    assert limits == Mount("/etc/subak/limits", "bind", "/run/subak/limits/u_c", limits.options)
    assert limits.options[-1] == "ro"
    assert own.options[-1] == "rw"


def test_a_file_system_in_memory_has_no_source() -> None:
    injection = Injection(mounts=[mount.Mount("/scratch", size=1024)])
    (made,) = adjustment(injection, Container()).mounts
    assert (made.type, made.options[-1]) == ("tmpfs", "size=1024")


def test_only_what_shows_cards_is_hidden() -> None:
    for shown, expected in (("all", ((SHOWN, "void"),)), ("void", ()), ("none", ()), ("", ())):
        assert hidden(Container(env=(f"{SHOWN}={shown}",))).env == expected
    assert hidden(Container(env=("PATH=/bin",))) == NO_ADJUSTMENT
