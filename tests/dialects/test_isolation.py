from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak import __version__
from subak.dialects import Injection, isolation
from subak.model import manifest
from subak.model.device import MIB
from subak.model.mount import Mount, Purpose
from subak.model.node import Node
from subak.model.placement import Share

NODE = Node("n1")


def shared(uid: str = "u-1", namespace: str = "", **container: Any) -> manifest.Pod:
    """A pod whose second container is `main`."""
    content = {
        "metadata": {"name": "p", "uid": uid, "namespace": namespace},
        "spec": {"containers": [{"name": "side"}, {"name": "main", **container}]},
    }
    return msgspec.convert(content, manifest.Pod)


def share(index: int = 0, id: str = "", mib: int = 1, cores: int = 0) -> Share:
    return Share(id or f"n1-nvidia-{index}", index, mib * MIB, cores)


def said(shares: list[Share], **env: str) -> list[str]:
    """What the agent writes for the container `main`."""
    injection = isolation.limits(shared(), 1, shares)
    injection.env |= env
    mount, state = isolation.guard(shared(), 1, injection)
    assert state == Mount("/etc/subak/state", "/run/subak/state/u-1_main", read_only=True, purpose=Purpose.STATE)
    assert (mount.source, mount.destination) == ("/run/subak/limits/u-1_main", "/etc/subak/limits")
    assert mount.read_only
    return mount.content.splitlines()


class TestVisibleCards:
    def test_cards_are_told_by_uuid_in_the_order_of_the_grant(self) -> None:
        assert isolation.visible([share(1, "GPU-b"), share(0, "GPU-a")], NODE) == "GPU-b,GPU-a"

    def test_cards_that_have_no_uuid_are_told_by_index(self) -> None:
        assert isolation.visible([share(7), share(0)], NODE) == "7,0"

    def test_uuids_and_indices_are_never_mixed(self) -> None:
        """The NVIDIA runtime takes one kind of name in a list."""
        assert isolation.visible([share(0, "GPU-a"), share(1)], NODE) == "0,1"

    def test_an_id_that_only_looks_like_ours_is_a_uuid(self) -> None:
        assert isolation.visible([share(1, "n1-nvidia-0")], NODE) == "n1-nvidia-0"
        assert isolation.visible([share(0, "n2-nvidia-0")], NODE) == "n2-nvidia-0"


class TestLimits:
    def test_every_visible_card_has_its_own_limit_of_memory(self) -> None:
        env = isolation.limits(shared(), 1, [share(3, mib=3000, cores=30), share(1, mib=4000, cores=30)]).env
        assert env == {
            "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
            "CUDA_DEVICE_MEMORY_LIMIT_1": "4000m",
            "CUDA_DEVICE_SM_LIMIT": "30",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/u-1_main.cache",
        }

    @given(st.integers(0, 2**44))
    def test_a_limit_is_never_above_the_share_and_less_than_a_mib_below(self, size: int) -> None:
        text = isolation.limits(shared(), 1, [Share("GPU-a", 0, size, 0)]).env["CUDA_DEVICE_MEMORY_LIMIT_0"]
        assert text.endswith("m")
        assert 0 <= size - int(text[:-1]) * MIB < MIB

    def test_containers_of_a_pod_and_pods_of_a_node_have_accounts_of_their_own(self) -> None:
        caches = {
            isolation.limits(asking, position, [share()]).env["CUDA_DEVICE_MEMORY_SHARED_CACHE"]
            for asking in (shared("u-1"), shared("u-2"), shared("", "team"), shared(""))
            for position in (0, 1)
        }
        assert len(caches) == 8
        assert "/usr/local/vgpu/default_p_main.cache" in caches
        assert "/usr/local/vgpu/team_p_side.cache" in caches

    def test_the_library_appears_where_users_of_hami_expect_it(self) -> None:
        host = f"/usr/local/subak/{__version__}"
        assert isolation.limits(shared(), 1, [share()]).mounts == [
            Mount("/usr/local/vgpu", "/usr/local/vgpu/containers/u-1_main", purpose=Purpose.ACCOUNT),
            Mount("/usr/local/vgpu/libvgpu.so", f"{host}/libsubak.so", read_only=True, purpose=Purpose.LIBRARY),
            Mount("/tmp/vgpulock", "/tmp/vgpulock", purpose=Purpose.TURNS),
            Mount("/etc/ld.so.preload", f"{host}/ld.so.preload", read_only=True, purpose=Purpose.PRELOAD),
        ]

    def test_no_mount_covers_an_earlier_one(self) -> None:
        earlier: list[PurePosixPath] = []
        for mount in isolation.limits(shared(), 1, [share()]).mounts:
            place = PurePosixPath(mount.destination)
            assert not any(each.is_relative_to(place) for each in earlier)
            earlier.append(place)

    def test_a_container_cannot_change_the_library_that_limits_it(self) -> None:
        writable = {each.destination for each in isolation.limits(shared(), 1, [share()]).mounts if not each.read_only}
        assert writable == {"/usr/local/vgpu", "/tmp/vgpulock"}

    @pytest.mark.parametrize(
        ("env", "preloaded"),
        [
            ([], True),
            ([{"name": "CUDA_DISABLE_CONTROL", "value": "true"}], False),
            ([{"name": "CUDA_DISABLE_CONTROL", "value": "false"}], True),
            ([{"name": "CUDA_DISABLE_CONTROL"}], True),
            ([{"name": "OTHER", "value": "true"}], True),
            ([{"name": "OTHER", "value": "x"}, {"name": "CUDA_DISABLE_CONTROL", "value": "true"}], False),
        ],
    )
    def test_the_library_is_not_preloaded_where_the_container_says_so(
        self, env: list[dict[str, str]], preloaded: bool
    ) -> None:
        mounts = isolation.limits(shared(env=env), 1, [share()]).mounts
        assert any(each.destination == "/etc/ld.so.preload" for each in mounts) is preloaded
        assert len(mounts) == 3 + preloaded

    def test_the_agents_file_says_what_a_program_must_not_choose_itself(self) -> None:
        assert said([share(3, mib=3000, cores=30), share(1, mib=4000, cores=100)]) == [
            f"CUDA_DEVICE_MEMORY_LIMIT_0={3000 * MIB}",
            "CUDA_DEVICE_SM_LIMIT_0=30",
            f"CUDA_DEVICE_MEMORY_LIMIT_1={4000 * MIB}",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE=/usr/local/vgpu/u-1_main.cache",
            "SUBAK_TURNS=/tmp/vgpulock",
            "GPU_CORE_UTILIZATION_POLICY=default",
            "CUDA_TASK_PRIORITY=1",
            "SUBAK_STATE=/etc/subak/state",
            "SUBAK_CONTAINER=1",
        ]

    def test_what_the_administrator_switched_stands_in_the_file_too(self) -> None:
        switched = said([share()], GPU_CORE_UTILIZATION_POLICY="disable", CUDA_TASK_PRIORITY="0")
        assert {"GPU_CORE_UTILIZATION_POLICY=disable", "CUDA_TASK_PRIORITY=0"} <= set(switched)

    def test_a_library_that_only_a_variable_names_is_preloaded_into_all_programs(self) -> None:
        by_variable = isolation.limits(shared(), 1, [share()])
        by_variable.mounts = [each for each in by_variable.mounts if each.destination != "/etc/ld.so.preload"]
        added = isolation.guard(shared(), 1, by_variable)
        assert [each.destination for each in added] == ["/etc/subak/limits", "/etc/subak/state", "/etc/ld.so.preload"]
        off = shared(env=[{"name": "CUDA_DISABLE_CONTROL", "value": "true"}])
        switched, _ = isolation.guard(off, 1, by_variable)
        assert switched.destination == "/etc/subak/limits"
        assert "CUDA_DISABLE_CONTROL=true" in switched.content.splitlines()  # the variable alone has no say

    def test_cards_are_listed_where_their_uuids_are_known(self) -> None:
        assert said([share(3, "GPU-b"), share(1, "MIG-a")])[0] == "SUBAK_CARDS=GPU-b,MIG-a"
        assert not any(line.startswith("SUBAK_CARDS") for line in said([share(3, "GPU-b"), share(1)]))

    def test_who_has_whole_cards_gets_no_such_file(self) -> None:
        assert isolation.guard(shared(), 1, Injection({"NVIDIA_VISIBLE_DEVICES": "0"})) == []

    def test_a_neighbour_that_switches_it_off_does_so_for_itself_alone(self) -> None:
        asking = shared(env=[{"name": "CUDA_DISABLE_CONTROL", "value": "true"}])
        mounts = isolation.limits(asking, 0, [share()]).mounts
        assert any(each.destination == "/etc/ld.so.preload" for each in mounts)
