"""The guard: what each container gets, what is refused, and what is found after we were away."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.node.guard import PATIENCE_S, Exemptions
from subak.node.nri.messages import NO_ADJUSTMENT, Adjustment, Container, DeviceNode, Mount, Runtime, State
from subak.node.nri.plugin import Plugin, Refused
from tests.node.guarded import A10, API, CARD, HALF, RECORD, Node, bind, bound, running, sandbox
from tests.support import nri
from tests.support.fuzz import histories
from tests.support.machines import machine
from tests.support.nri import OLD

SHOWN = "NVIDIA_VISIBLE_DEVICES"
ALL = (f"{SHOWN}=all", "PATH=/bin")


@pytest.fixture(autouse=True)
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBAK_TURNS", str(tmp_path / "turns"))


# What a container gets


async def test_a_container_gets_the_cards_of_its_pods_record_and_its_limits(tmp_path: Path, libsubak: Path) -> None:
    node = Node(folder=tmp_path)
    node.bound("p")
    adjustment = await node.create("p", env=ALL)
    env = dict(adjustment.env)
    assert (env[SHOWN], env["CUDA_DEVICE_MEMORY_LIMIT_0"]) == (CARD, "12000m")
    mounts = {each.destination: each for each in adjustment.mounts}
    assert mounts["/etc/ld.so.preload"].options[-1] == mounts["/etc/subak/limits"].options[-1] == "ro"
    assert f"CUDA_DEVICE_MEMORY_LIMIT_0={12000 << 20}" in Path(mounts["/etc/subak/limits"].source).read_text()
    library = Path(mounts["/usr/local/vgpu/libvgpu.so"].source)
    assert library.read_bytes() == libsubak.read_bytes()
    assert library.parent.parent == tmp_path / "usr/local/subak"


async def test_the_other_containers_of_the_pod_see_no_card() -> None:
    node = Node()
    node.bound("p")
    assert (await node.create("p", "side", env=ALL)).env == ((SHOWN, "void"),)
    assert await node.create("p", "side") == NO_ADJUSTMENT
    assert node.arbiter.free() == [], "the pod holds its card from its first container on"


async def test_a_pod_without_cards_is_left_alone_unless_its_image_asks_for_them() -> None:
    node = Node()
    node.bound("p", {})
    assert await node.create("p", env=("PATH=/bin", f"{SHOWN}=none")) == NO_ADJUSTMENT
    assert (await node.create("p", env=ALL)).env == ((SHOWN, "void"),)
    assert (await node.create("p", env=(f"{SHOWN}=0",))).env == ((SHOWN, "void"),)


async def test_privileged_containers_and_exempt_namespaces_may_see_cards() -> None:
    node = Node()
    privileged = {"name": "c", "securityContext": {"privileged": True}}
    node.bound("p", containers=[privileged, {"name": "side"}])
    assert await node.create("p", env=ALL) == NO_ADJUSTMENT
    assert (await node.create("p", "side", env=ALL)).env == ((SHOWN, "void"),)
    node.bound("q", {})
    assert await node.create("q", env=ALL, namespace="kube-system") == NO_ADJUSTMENT


async def test_pods_that_a_vendors_own_agent_serves_are_its_business() -> None:
    node = Node(exempt=Exemptions(served=lambda: {"hami-nvidia"}))
    node.bound("p")
    assert await node.create("p", env=(f"{SHOWN}={CARD}",)) == NO_ADJUSTMENT
    assert node.arbiter.free(), "nothing is booked for it here"
    node.bound("q", {})
    assert (await node.create("q", env=ALL)).env == ((SHOWN, "void"),)


async def test_a_machine_without_cards_of_ours_has_nothing_to_hide() -> None:
    """A vendor's own agent may serve all of its cards, and its monitors must see them."""
    node = Node()
    node.arbiter.change(replace(node.arbiter.machine, devices=()))
    node.bound("q", {})
    assert await node.create("q", env=ALL) == NO_ADJUSTMENT


async def test_ephemeral_containers_see_no_card() -> None:
    node = Node()
    node.bound("p")
    await node.create("p")
    assert (await node.create("p", "debugger", env=ALL)).env == ((SHOWN, "void"),)


async def test_init_containers_and_sidecars_get_their_own_cards() -> None:
    node = Node()
    early = [
        {"name": "init", "resources": {"limits": HALF}},
        {"name": "proxy", "restartPolicy": "Always", "resources": {"limits": {**HALF, "nvidia.com/gpumem": "1000"}}},
    ]
    node.bound("p", initContainers=early)
    limits = {
        name: dict((await node.create("p", name)).env)["CUDA_DEVICE_MEMORY_LIMIT_0"] for name in ("init", "proxy", "c")
    }
    assert limits == {"init": "12000m", "proxy": "1000m", "c": "12000m"}


async def test_a_restarted_container_gets_the_same_and_begins_with_clean_books(tmp_path: Path) -> None:
    node = Node(folder=tmp_path)
    pod = node.bound("p")
    first = await node.create("p")
    (tenant,) = node.arbiter.tenants(pod)
    assert tenant.region is not None
    tenant.region.write_text("who ran before")
    node.stop("p")
    assert await node.create("p") == first
    assert not tenant.region.exists()


async def test_a_containers_own_preloads_stay_behind_ours(tmp_path: Path) -> None:
    node = Node(replace(A10, speaks=A10.speaks), tmp_path)
    limits = {
        "koordinator.sh/gpu-core": "50",
        "koordinator.sh/gpu-memory-ratio": "50",
        "koordinator.sh/gpu.shared": "1",
    }
    pod = bound(node.machine, "p", limits)
    labels = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
    metadata = msgspec.structs.replace(pod.metadata, labels=labels)
    node.watch.seen["p"] = msgspec.structs.replace(pod, metadata=metadata)
    env = dict((await node.create("p", env=("LD_PRELOAD=/mine.so",))).env)
    assert env["LD_PRELOAD"] == "/usr/local/vgpu/libvgpu.so:/mine.so"


# Real cards


async def test_device_nodes_are_those_of_the_host() -> None:
    node = Node(replace(A10, device_files={CARD: ("/dev/null", "/dev/zero")}))
    node.bound("p")
    adjustment = await node.create("p")
    assert adjustment.devices == (DeviceNode("/dev/null", "c", 1, 3, 0o666), DeviceNode("/dev/zero", "c", 1, 5, 0o666))


@pytest.mark.parametrize(("path", "why"), [("/dev/none", "No such file"), ("/etc/passwd", "is no device node")])
async def test_without_its_device_nodes_a_container_does_not_start_and_holds_nothing(path: str, why: str) -> None:
    node = Node(replace(A10, device_files={CARD: (path,)}))
    node.bound("p")
    with pytest.raises(Refused, match=why):
        await node.create("p")
    assert node.arbiter.free()


def describe(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    devices = [{"name": each, "containerEdits": {}} for each in names]
    (folder / "nvidia.json").write_text(
        json.dumps({"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices})
    )
    return folder


async def test_where_the_host_describes_the_card_the_runtime_brings_it_and_nobody_else(tmp_path: Path) -> None:
    node = Node(replace(A10, device_files={CARD: ("/dev/null",)}), cdi=describe(tmp_path, "0", CARD, "all"))
    node.bound("p")
    adjustment = await node.create("p", env=ALL)
    assert adjustment.cdi == (f"nvidia.com/gpu={CARD}",)
    assert adjustment.devices == ()
    assert dict(adjustment.env)[SHOWN] == "void", "or NVIDIA's own runtime would bring it too"


async def test_a_runtime_that_would_drop_the_names_gets_device_nodes(tmp_path: Path) -> None:
    real = replace(A10, device_files={CARD: ("/dev/null",)})
    old = Node(real, runtime=Runtime("containerd", "1.7.27"), cdi=describe(tmp_path, CARD))
    undescribed = Node(real, cdi=describe(tmp_path / "other", "0"))
    for node in (old, undescribed):
        node.bound("p")
        adjustment = await node.create("p")
        assert [each.path for each in adjustment.devices] == ["/dev/null"]
        assert not adjustment.cdi
        assert dict(adjustment.env)[SHOWN] == CARD


# Refusals


async def refusal(node: Node, name: str, container: str = "c", env: tuple[str, ...] = ()) -> str:
    with pytest.raises(Refused) as caught:
        await node.create(name, container, env)
    return str(caught.value)


async def test_a_container_that_would_overcommit_a_card_is_refused_and_its_user_told() -> None:
    node = Node()
    node.bound("first")
    node.bound("second")
    await node.create("first")
    text = await refusal(node, "second")
    assert text.startswith("subak: card")
    assert "which would overcommit the card" in text
    ((pod, container, message),) = node.said.refusals
    assert (pod, container, f"subak: {message}") == ("second", "c", text)
    assert [each.name for each in node.arbiter.holders()] == ["first"]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (";;", "no annotation of the pod records any"),
        ("GPU-elsewhere,NVIDIA,12000,0:;;", "has no card GPU-elsewhere"),
        (f"{CARD},NVIDIA,12000,0:{CARD},NVIDIA,12000,0:;;", "it asks for 1"),
        (f"{CARD},NVIDIA,many,0:;;", "cannot be read"),
    ],
)
async def test_a_record_that_is_missing_or_forged_gives_nothing(record: str, why: str) -> None:
    node = Node()
    node.bound("p")
    node.annotate("p", **{RECORD: record})
    assert why in await refusal(node, "p")
    assert node.arbiter.free()


async def test_a_record_of_another_node_gives_nothing() -> None:
    node = Node()
    node.watch.seen["p"] = bound(replace(A10, name="elsewhere"), "p")
    assert "is of node elsewhere, this is node a10" in await refusal(node, "p")


async def test_a_pod_is_waited_for_and_refused_if_it_does_not_come() -> None:
    node = Node()
    node.watch.late["late"] = bound(A10, "late")
    assert dict((await node.create("late")).env)[SHOWN] == CARD
    assert "does not know pod default/gone" in await refusal(node, "gone")
    assert node.watch.waited == [PATIENCE_S, PATIENCE_S]
    assert not node.said.refusals, "there is nobody to tell"


async def test_another_pod_under_the_uid_is_not_the_containers_pod() -> None:
    node = Node()
    node.watch.seen["victim"] = bound(A10, "attacker")
    assert "does not know pod default/victim" in await refusal(node, "victim")


async def test_a_variable_that_image_and_pod_set_must_have_our_value_already() -> None:
    """The runtime lists both, replaces the first one only, and NVIDIA's runtime reads the last."""
    node = Node()
    node.bound("p")
    node.bound("q", {})
    twice = (f"{SHOWN}=void", f"{SHOWN}=all")
    why = f"container c sets {SHOWN} to 'all' and its image sets it too"
    assert why in await refusal(node, "p", env=twice)
    assert why in await refusal(node, "q", env=twice)
    assert node.arbiter.free()
    assert dict((await node.create("p", env=(f"{SHOWN}=all", f"{SHOWN}={CARD}"))).env)[SHOWN] == CARD
    assert (await node.create("q", env=(f"{SHOWN}=all", f"{SHOWN}=none"))).env == ((SHOWN, "none"),)


@pytest.mark.parametrize(
    "path", ["/etc//ld.so.preload", "/etc/ld.so.preload/", "/etc/./subak/limits", "//etc/subak/limits"]
)
async def test_a_mount_of_the_pod_cannot_take_the_place_of_ours(path: str) -> None:
    node = Node()
    node.bound("p")
    container = Container("p-c", "sandbox-p", "c", mounts=(bind(path),))
    with pytest.raises(Refused, match="which the node needs: mount it elsewhere"):
        await node.guard.create(sandbox("p"), container)
    same = Container("p-c", "sandbox-p", "c", mounts=(bind("/etc/ld.so.preload"), bind("/etc")))
    # The runtime replaces the first, and the second comes before ours.
    assert (await node.guard.create(sandbox("p"), same)).mounts


# Static pods


async def test_static_pods_start_without_an_api_server_and_see_no_card() -> None:
    node = Node()
    static = {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "hash"}
    assert await node.create("hash", annotations=static) == NO_ADJUSTMENT
    assert (await node.create("hash", env=ALL, annotations=static)).env == ((SHOWN, "void"),)
    assert node.watch.waited == []


async def test_a_static_pod_that_asks_for_cards_is_refused_by_its_mirror_and_by_no_other_pod() -> None:
    node = Node()
    static = {"kubernetes.io/config.source": "file"}
    for name in ("mirror", "impostor"):
        pod = node.bound(name)
        del node.watch.seen[name]
        annotations = {**pod.annotations, "kubernetes.io/config.hash": name}
        metadata = msgspec.structs.replace(pod.metadata, annotations=annotations, uid=f"uid-{name}")
        if name == "impostor":
            metadata = msgspec.structs.replace(metadata, name="another")
        node.watch.seen[f"uid-{name}"] = msgspec.structs.replace(pod, metadata=metadata)
    with pytest.raises(Refused, match="static pods get no cards"):
        await node.create("mirror", annotations=static)
    assert await node.create("impostor", annotations=static) == NO_ADJUSTMENT


async def test_what_repairs_a_node_starts_though_our_watch_does_not_know_it() -> None:
    node = Node()
    assert await node.create("kube-proxy", env=ALL, namespace="kube-system") == NO_ADJUSTMENT
    with pytest.raises(Refused, match="does not know"):
        await node.create("p", namespace="kube-system", annotations={RECORD: "x"})


# Validation


async def test_an_adjustment_that_is_not_ours_is_rejected() -> None:
    node = Node(replace(A10, device_files={CARD: ("/dev/null",)}))
    ours = {"p": sandbox("p"), "q": sandbox("q")}
    node.bound("p")
    node.bound("q", {})
    container = {name: Container(f"{name}-c", f"sandbox-{name}", "c") for name in ours}
    good = await node.guard.create(ours["p"], container["p"])
    env, mounts, devices = good.env, good.mounts, good.devices
    shadow = bind("/etc//subak/limits")
    wrong = [
        (NO_ADJUSTMENT, "would be unset"),
        (replace(good, env=env[1:]), "would be unset"),
        (replace(good, env=((env[0][0], "all"), *env[1:])), f"variable {env[0][0]} would be 'all'"),
        (replace(good, env=(*env, env[0])), "would be"),
        (replace(good, env=(*env, (f"-{env[0][0]}", ""))), "would be"),
        (replace(good, mounts=mounts[:-1]), "the mounts at"),
        (replace(good, mounts=(*mounts, shadow)), "the mounts at"),
        (replace(good, mounts=(*mounts, Mount(f"-{mounts[0].destination}"))), "the mounts at"),
        (replace(good, mounts=(replace(mounts[0], source="/evil"), *mounts[1:])), "the mounts at"),
        (replace(good, devices=()), "the device nodes would be none"),
        (replace(good, devices=(*devices, DeviceNode("/dev/null", "c", 1, 5))), "the device nodes"),
        (replace(good, cdi=(f"nvidia.com/gpu={CARD}",)), "the CDI devices"),
    ]
    for final, why in wrong:
        await node.guard.create(ours["p"], container["p"])
        text = node.guard.validate(ours["p"], container["p"], final)
        assert why in text
        assert "another NRI plugin is in the way" in text
        assert node.said.refusals.pop()[2] in text
        assert node.arbiter.free(), "who is rejected holds nothing"
    assert await node.guard.create(ours["q"], container["q"]) == NO_ADJUSTMENT
    shown = Adjustment(env=((SHOWN, "all"),))
    assert "the container has no card" in node.guard.validate(ours["q"], container["q"], shown)


async def test_what_other_plugins_add_besides_is_their_business() -> None:
    node = Node()
    node.bound("p")
    container = Container("p-c", "sandbox-p", "c")
    good = await node.guard.create(sandbox("p"), container)
    more = replace(
        good,
        env=(("OTHER", "1"), *good.env),
        mounts=(*good.mounts, bind("/etc"), bind("/opt/other")),
        devices=(DeviceNode("/dev/fuse", "c", 10, 229),),
        cdi=("vendor.com/nic=0",),
    )
    assert node.guard.validate(sandbox("p"), container, more) == ""


async def test_a_container_that_the_runtime_did_not_ask_about_is_rejected() -> None:
    """As after an agent was killed inside CreateContainer and came back, or was too slow."""
    node = Node()
    node.bound("p")
    text = node.guard.validate(sandbox("p"), Container("p-c", "sandbox-p", "c"), NO_ADJUSTMENT)
    assert "the runtime did not ask" in text


# Who holds what


async def test_a_pod_that_was_deleted_by_force_holds_its_card_until_its_container_has_ended() -> None:
    node = Node()
    node.bound("first")
    node.bound("second")
    await node.create("first")
    await node.create("first", "side")
    pod = node.watch.seen.pop("first")
    assert not node.arbiter.release(pod), "as the agent does when the object is gone"
    assert "would overcommit" in await refusal(node, "second")
    node.stop("first")
    assert "would overcommit" in await refusal(node, "second")
    node.stop("first", "side")
    assert dict((await node.create("second")).env)[SHOWN] == CARD


async def test_a_pod_between_two_runs_of_its_container_keeps_its_card() -> None:
    node = Node()
    node.bound("first")
    node.bound("second")
    await node.create("first")
    node.phase("first", "Running")
    node.stop("first")
    assert "would overcommit" in await refusal(node, "second")
    node.phase("first", "Succeeded")
    await node.create("second")
    assert "would overcommit" in await refusal(node, "first")


async def test_after_a_restart_the_guard_knows_who_holds_what() -> None:
    node = Node()
    node.bound("first")
    node.bound("second")
    adjustment = await node.create("first")
    node.restarted()
    node.guard.synchronize([sandbox("first")], [running(adjustment, "first")])
    assert not node.said.evictions
    assert "would overcommit" in await refusal(node, "second")
    node.guard.synchronize([], [])
    node.watch.seen.pop("first")
    await node.create("second")


async def test_a_container_of_a_pod_that_is_gone_counts_whole_after_a_restart() -> None:
    node = Node()
    node.bound("first")
    node.bound("small", {**HALF, "nvidia.com/gpumem": "100"})
    adjustment = await node.create("first")
    node.watch.seen.pop("first")
    node.restarted()
    node.guard.synchronize([sandbox("first")], [running(adjustment, "first")])
    assert "default/first hold the rest" in await refusal(node, "small")
    node.stop("first")
    await node.create("small")


async def test_a_container_of_a_pod_that_is_gone_holds_what_its_record_says_if_the_runtime_knows_it() -> None:
    node = Node()
    first = node.bound("first")
    node.bound("small", {**HALF, "nvidia.com/gpumem": "100"})
    node.bound("large", {**HALF, "nvidia.com/gpumem": "23028"})
    adjustment = await node.create("first")
    node.watch.seen.pop("first")
    node.restarted()
    of = sandbox("first", annotations={**API, **first.annotations})
    node.guard.synchronize([of], [running(adjustment, "first")])
    assert "default/first" in await refusal(node, "large")
    await node.create("small")


def test_all_containers_of_a_pod_that_is_gone_count() -> None:
    node = Node(machine("volcano", taints=[]))
    first, second = (each.id for each in node.machine.devices[:2])
    containers = [
        Container(f"gone-{name}", "sandbox-gone", name, State.RUNNING, (f"{SHOWN}={id}",))
        for name, id in (("a", first), ("b", second))
    ]
    for _ in range(2):
        node.guard.synchronize([sandbox("gone")], containers)
        assert node.arbiter.free() == list(node.machine.devices[2:])
    node.stop("gone", "a")
    assert node.arbiter.free() == list(node.machine.devices[2:])
    node.stop("gone", "b")
    assert node.arbiter.free() == list(node.machine.devices)


# What ran while we were away


async def test_containers_that_started_without_their_limits_are_removed(tmp_path: Path) -> None:
    node = Node(folder=tmp_path)
    node.bound("p")
    good = await node.create("p")
    unlimited = tuple(each for each in good.mounts if each.destination != "/etc/subak/limits")
    faked = replace(good, mounts=tuple(replace(each, source="/configmap") for each in good.mounts))
    for adjustment, why in (
        (NO_ADJUSTMENT, "so that no limit holds"),
        (replace(good, mounts=unlimited), "has no /etc/subak/limits, so that no limit holds"),
        (faked, "so that no limit holds"),
        (replace(good, env=((SHOWN, "all"),)), f"sees the cards all, not {CARD}"),
    ):
        node.restarted()
        node.guard.synchronize([sandbox("p")], [running(adjustment, "p")])
        ((name, message),) = node.said.evictions
        assert name == "p"
        assert why in message
        node.said.evictions.clear()
    node.guard.synchronize([sandbox("p")], [running(good, "p"), running(NO_ADJUSTMENT, "p", "side")])
    assert not node.said.evictions


async def test_containers_of_an_older_version_go_on(tmp_path: Path) -> None:
    node = Node(folder=tmp_path)
    node.bound("p")
    good = await node.create("p")
    old = tmp_path / "usr/local/subak/0.0.1"
    unused = tmp_path / "usr/local/subak/0.0.2"
    for folder in (old, unused):
        folder.mkdir()
        (folder / "libsubak.so").touch()
    mounts = tuple(
        replace(each, source=str(old / Path(each.source).name)) if "/subak/0." in each.source else each
        for each in good.mounts
    )
    assert mounts != good.mounts
    node.restarted()
    node.guard.synchronize([sandbox("p")], [running(replace(good, mounts=mounts), "p")])
    assert not node.said.evictions
    assert old.exists(), "a container uses it"
    assert not unused.exists()


async def test_a_forged_record_of_a_running_container_is_no_reason_to_end_it(tmp_path: Path) -> None:
    node = Node(folder=tmp_path)
    node.bound("p")
    good = await node.create("p")
    node.annotate("p", **{RECORD: f"{CARD},NVIDIA,many,0:;;"})
    node.restarted()
    node.guard.synchronize([sandbox("p")], [running(good, "p")])
    assert not node.said.evictions
    node.bound("q")
    assert "would overcommit" in await refusal(node, "q"), "it counts on every card that it may hold"
    node.guard.synchronize([sandbox("p")], [running(NO_ADJUSTMENT, "p")])
    assert "may have no card" in node.said.evictions[0][1]


async def test_while_no_card_is_known_nobody_is_judged() -> None:
    node = Node()
    node.bound("p")
    node.arbiter.change(replace(A10, devices=()))
    node.guard.synchronize([sandbox("p")], [running(NO_ADJUSTMENT, "p")])
    assert not node.said.evictions


async def test_a_container_that_sees_cards_without_asking_is_only_named() -> None:
    node = Node()
    node.bound("p", {})
    seeing = Container("p-c", "sandbox-p", "c", State.RUNNING, ALL)
    node.guard.synchronize([sandbox("p")], [seeing])
    assert not node.said.evictions
    ((name, message),) = node.said.warnings
    assert name == "p"
    assert "sees cards without asking" in message


async def test_files_of_pods_that_ended_unseen_are_swept_away(tmp_path: Path) -> None:
    node = Node(folder=tmp_path)
    pod = node.bound("p")
    adjustment = await node.create("p")
    (limits,) = (Path(each.source) for each in adjustment.mounts if each.destination == "/etc/subak/limits")
    (tenant,) = node.arbiter.tenants(pod)
    assert tenant.region is not None
    node.restarted()
    node.guard.synchronize([], [])
    assert limits.exists(), "the pod is there, and may start again"
    node.watch.seen.clear()
    node.guard.synchronize([], [])
    assert not limits.exists()
    assert not tenant.region.parent.exists()


# On the wire, and under chance


async def test_a_runtime_gets_it_all_by_bytes(tmp_path: Path) -> None:
    node = Node(folder=tmp_path)
    node.bound("p")
    node.bound("q")
    for number, version in enumerate((nri.NEW, OLD)):
        folder = tmp_path / str(number)
        folder.mkdir()
        node.restarted()
        async with nri.runtime(folder) as fake:
            task = asyncio.create_task(Plugin(node.guard, fake.socket).run())
            link = await fake.link()
            await link.begin(version)
            of, it = nri.pod("p"), nri.container("c", "p", ALL)
            adjustment = await link.create(of, it)
            assert dict(adjustment.env)[SHOWN] == CARD
            if version == nri.NEW:
                assert await link.validate(of, it, adjustment) == ""
                assert "did not ask" in await link.validate(of, it, adjustment)
                await link.create(of, it)
            with pytest.raises(nri.Failure, match="would overcommit the card"):
                await link.create(nri.pod("q"), nri.container("c", "q"))
            task.cancel()
            await asyncio.wait({task})


NAMES = ["a", "b", "c"]
STEPS = st.tuples(
    st.sampled_from(["create", "create", "create", "stop", "finish", "force", "restart", "reject", "bind"]),
    st.sampled_from(NAMES),
)


@histories(quick=30, ci=1_000)
@given(st.lists(STEPS, max_size=25))
def test_whatever_happens_living_containers_never_have_more_than_the_card(steps: list[tuple[str, str]]) -> None:
    assert A10.devices[0].memory_bytes >> 20 < 2 * 12000, "the card has no room for two"

    async def story() -> None:
        node = Node()
        living: dict[str, Container] = {}
        for name in NAMES:
            node.bound(name)
        for step, name in steps:
            if step in ("create", "reject") and name not in living:
                it = Container(f"{name}-c", f"sandbox-{name}", "c")
                try:
                    adjustment = await node.guard.create(sandbox(name), it)
                except Refused:
                    continue
                final = adjustment if step == "create" else NO_ADJUSTMENT
                if not node.guard.validate(sandbox(name), it, final):
                    living[name] = running(adjustment, name)
            elif step == "stop" and name in living:
                del living[name]
                node.stop(name)
            elif step == "finish" and name in node.watch.seen and name not in living:
                node.phase(name, "Succeeded")
            elif step == "force":
                node.watch.seen.pop(name, None)
            elif step == "bind" and name not in node.watch.seen and name not in living:
                node.bound(name)
            elif step == "restart":
                node.restarted()
                node.guard.synchronize([sandbox(each) for each in living], list(living.values()))
                assert not node.said.evictions
            assert len(living) <= 1
            for each in living:
                assert each in [pod.metadata.uid for pod in node.arbiter.holders()]
        for name in list(living):
            del living[name]
            node.stop(name)
        node.watch.seen.clear()
        node.guard.synchronize([], [])
        assert node.arbiter.free(), "nothing is forgotten"

    asyncio.run(story())
