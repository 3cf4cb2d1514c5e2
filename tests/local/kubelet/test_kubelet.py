"""Pods on the embedded API server, with containers that follow a script."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from subak.dialects import Injection
from subak.local.runtime.none import Nothing
from subak.local.runtime.spec import Spec, StartError
from subak.model import manifest
from subak.model.reason import NotReady, Refusal
from tests.support.kubelet.harness import Harness, add_node, harness, in_virtual_time
from tests.support.kubelet.pods import container
from tests.support.kubelet.scripted import Scripted, ScriptedRuntime
from tinykube.resource import CONFIG_MAPS, EVENTS, NODES, PODS, SECRETS, SERVICES
from tinykube.status import ApiError
from tinykube.transport import Request, Unreachable


def main_of(pod: dict[str, Any]) -> dict[str, Any]:
    status: dict[str, Any] = pod["status"]["containerStatuses"][0]
    return status


def waiting_for(reason: str) -> Any:
    def waits(pod: dict[str, Any]) -> bool:
        statuses = pod["status"].get("containerStatuses")
        return bool(statuses) and statuses[0]["state"].get("waiting", {}).get("reason") == reason

    return waits


def ready(pod: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))


async def restarted(place: Harness, name: str, times: int) -> None:
    async with asyncio.timeout(10_000):
        while len(place.runtime.attempts(name)) < times + 1:
            await asyncio.sleep(0.02)


@in_virtual_time
async def test_a_bound_pod_comes_to_run_with_one_or_two_writes(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create()
        pod = await place.until(ready)
        assert pod["status"]["phase"] == "Running"
        assert pod["status"]["podIP"] == "127.0.0.1"
        assert pod["status"]["qosClass"] == "BestEffort"
        assert main_of(pod)["containerID"].startswith("subak://")
        assert place.wire.count("PATCH", "/status") <= 2
        assert await place.event("Started") == "Started: Container started"


@in_virtual_time
async def test_pods_of_other_nodes_are_left_alone(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create(name="stranger", nodeName="elsewhere")
        await place.create()
        await place.until(ready)
        assert (await place.get("stranger"))["status"]["phase"] == "Pending"
        assert place.runtime.order == ["web/main"]


@in_virtual_time
async def test_init_containers_come_first_and_the_job_succeeds(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        init = [container("one"), container("side", restartPolicy="Always"), container("two")]
        await place.create(init=init, restartPolicy="Never")
        for name in ("web/one", "web/two"):
            await restarted(place, name, 0)
            place.runtime[name].exit(0)
        await place.phase("Running")
        assert place.runtime.order == ["web/one", "web/side", "web/two", "web/main"]
        place.runtime["web/main"].exit(0)
        pod = await place.phase("Succeeded")
        assert main_of(pod)["state"]["terminated"]["reason"] == "Completed"
        assert not place.runtime["web/side"].running
        assert place.devices.held == set(), "a pod that is over holds no cards"


@in_virtual_time
async def test_a_crashing_container_is_restarted_at_once_and_then_with_growing_pauses(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create()
        times = []
        for crash in range(5):
            await restarted(place, "web/main", crash)
            times.append(asyncio.get_running_loop().time())
            place.runtime["web/main"].exit(1)
        pauses = [round(after - before) for before, after in pairwise(times)]
        assert pauses == [0, 10, 20, 40]
        pod = await place.until(waiting_for("CrashLoopBackOff"))
        assert main_of(pod)["state"]["waiting"]["message"].startswith("back-off 1m20s restarting failed container=main")
        assert main_of(pod)["restartCount"] == 4
        assert main_of(pod)["lastState"]["terminated"]["exitCode"] == 1
        assert pod["status"]["phase"] == "Running"
        assert "Back-off restarting failed container main in pod web_default(" in await place.event("BackOff")


@in_virtual_time
async def test_a_job_that_fails_is_tried_again_only_if_it_may_be(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create(name="once", restartPolicy="Never")
        await place.create(name="again", restartPolicy="OnFailure")
        for name in ("once", "again"):
            await place.phase("Running", name)
            place.runtime[f"{name}/main"].exit(7)
        failed = await place.phase("Failed", "once")
        assert main_of(failed)["state"]["terminated"]["exitCode"] == 7
        await restarted(place, "again/main", 1)
        place.runtime["again/main"].exit(0)
        await place.phase("Succeeded", "again")


@in_virtual_time
async def test_a_deleted_pod_is_asked_to_end_and_then_goes(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create(terminationGracePeriodSeconds=7)
        await place.until(ready)
        await place.delete()
        await place.gone()
        (grace,) = place.runtime["web/main"].graces
        assert grace == pytest.approx(7, abs=0.1)
        assert await place.event("Killing") == "Killing: Stopping container main"
        assert place.devices.held == set()


@in_virtual_time
async def test_a_stubborn_pod_is_killed_after_its_grace_and_sooner_if_asked_again(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        place.runtime.stubborn = {"web/main", "slow/main"}
        for name in ("web", "slow"):
            await place.create(name=name, terminationGracePeriodSeconds=60)
            await place.until(ready, name)
        began = asyncio.get_running_loop().time()
        await place.delete("slow")
        await place.delete()
        await asyncio.sleep(1)
        await place.delete(grace=5)
        await place.gone()
        assert asyncio.get_running_loop().time() - began == pytest.approx(6, abs=0.5)
        await place.gone("slow")
        assert asyncio.get_running_loop().time() - began == pytest.approx(60, abs=0.5)


@in_virtual_time
async def test_a_pod_whose_object_vanished_is_killed_soon(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        place.runtime.stubborn = {"web/main"}
        await place.create(terminationGracePeriodSeconds=600)
        await place.until(ready)
        await place.delete(grace=0)
        await place.gone()
        assert await asyncio.wait_for(place.runtime["web/main"].wait(), 3) == 137
        await place.create()
        await place.until(ready)
        assert len(place.runtime.attempts("web/main")) == 2, "another pod of the same name lives its own life"


@in_virtual_time
async def test_a_pod_that_is_deleted_before_it_started_just_goes(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create(volumes=[{"name": "v", "configMap": {"name": "missing"}}])
        await place.event("FailedMount")
        await place.delete()
        await place.gone(patience=5)
        assert place.runtime.order == []


@in_virtual_time
async def test_a_pod_that_is_deleted_while_it_starts_goes_no_further(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        place.runtime.takes = 10.0
        await place.create(container("one"), container("two"))
        await asyncio.sleep(5)
        await place.delete()
        await place.gone()
        assert place.runtime.order == ["web/one"]


@in_virtual_time
async def test_a_finished_pod_that_is_deleted_goes(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create(restartPolicy="Never")
        await place.phase("Running")
        place.runtime["web/main"].exit(0)
        await place.phase("Succeeded")
        await place.delete()
        await place.gone(patience=5)


@in_virtual_time
async def test_a_deadline_fails_the_pod(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create(activeDeadlineSeconds=30, terminationGracePeriodSeconds=1)
        await place.until(ready)
        pod = await place.phase("Failed")
        assert pod["status"]["reason"] == "DeadlineExceeded"
        assert not place.runtime["web/main"].running


@in_virtual_time
async def test_a_node_refuses_what_it_does_not_have(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create(container(resources={"requests": {"cpu": "3"}}), name="first")
        await place.until(ready, "first")
        await place.create(container(resources={"requests": {"cpu": "2"}}))
        pod = await place.phase("Failed")
        assert pod["status"]["reason"] == "OutOfcpu"
        message = "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"
        assert pod["status"]["message"] == f"Pod was rejected: {message}"
        assert await place.event("OutOfcpu") == f"OutOfcpu: {message}"
        await place.delete("first")
        await place.gone("first")
        await place.create(container(resources={"requests": {"cpu": "4"}}), name="third")
        await place.until(ready, "third")


@in_virtual_time
async def test_a_placement_that_the_cards_cannot_honour_fails_the_pod(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        place.devices.refused["web"] = Refusal("metadata.annotations", "GPU-1", "GPU-1 is full")
        everything = container(resources={"requests": {"cpu": "4"}})
        await place.create(everything)
        pod = await place.phase("Failed")
        assert pod["status"]["reason"] == "UnexpectedAdmissionError"
        assert "Allocate failed due to GPU-1 is full, which is unexpected" in pod["status"]["message"]
        await place.create(everything, name="next")
        await place.until(ready, "next")
        await place.delete()
        await place.gone(patience=5)


@in_virtual_time
async def test_a_pod_waits_while_the_node_cannot_set_it_up_and_then_runs(tmp_path: Path) -> None:
    """As on a full disk.  It keeps its place on the node meanwhile."""
    async with harness(tmp_path) as place:
        full = "no limit would hold: limits/web: No space left on device"
        place.devices.refused["web"] = NotReady("spec.nodeName", "node-1", full)
        await place.create(container(resources={"requests": {"cpu": "4"}}), restartPolicy="Never")
        pod = await place.until(waiting_for("CreateContainerConfigError"))
        assert pod["status"]["phase"] == "Pending"
        assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"] == full
        await place.create(container(resources={"requests": {"cpu": "1"}}), name="other")
        assert (await place.phase("Failed", "other"))["status"]["reason"] == "OutOfcpu"
        place.devices.refused.clear()
        await place.until(ready)


@in_virtual_time
async def test_a_container_that_found_no_room_on_the_machine_is_made_later(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        place.runtime.broken["web/main"] = StartError("0.log: No space left on device", number=errno.ENOSPC)
        await place.create(restartPolicy="Never")
        pod = await place.until(waiting_for("CreateContainerError"))
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
        place.runtime.broken.clear()
        await place.until(ready)


@in_virtual_time
async def test_a_pod_that_waits_so_can_be_deleted(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        place.devices.refused["web"] = NotReady("spec.nodeName", "node-1", "No space left on device")
        await place.create()
        await place.until(waiting_for("CreateContainerConfigError"))
        await place.delete()
        await place.gone(patience=5)


@in_virtual_time
async def test_the_share_of_the_cards_has_the_last_word_in_the_environment(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        place.devices.injection = Injection({"NVIDIA_VISIBLE_DEVICES": "GPU-1"})
        await place.add(SERVICES, {"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}})
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "ME", "value": "$(HOSTNAME)/$(A)"}]
        await place.create(container(env=env))
        await place.until(ready)
        found = place.runtime["web/main"].spec.env
        assert found["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"
        assert found["HOSTNAME"] == "web"
        assert found["DB_SERVICE_PORT"] == "5432"


@in_virtual_time
async def test_a_missing_key_is_waited_for(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        env = [{"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "level"}}}]
        await place.create(container(env=env))
        pod = await place.until(waiting_for("CreateContainerConfigError"))
        assert main_of(pod)["state"]["waiting"]["message"] == 'configmap "settings" not found'
        assert await place.event("Failed") == 'Failed: Error: configmap "settings" not found'
        await place.add(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"level": "info"}})
        await place.until(ready)
        assert place.runtime["web/main"].spec.env["LEVEL"] == "info"


@in_virtual_time
async def test_a_missing_volume_is_waited_for(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create(volumes=[{"name": "v", "secret": {"secretName": "keys"}}])
        expected = 'FailedMount: MountVolume.SetUp failed for volume "v" : secret "keys" not found'
        assert await place.event("FailedMount") == expected
        pod = await place.until(waiting_for("ContainerCreating"))
        assert pod["status"]["phase"] == "Pending"
        await place.add(SECRETS, {"metadata": {"name": "keys"}})
        await place.until(ready)


@in_virtual_time
async def test_a_volume_of_a_kind_that_is_not_served_is_refused_with_a_reason(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}])
        assert "this kind of volume is not served here" in await place.event("FailedMount")


@in_virtual_time
async def test_an_image_without_a_command_waits_with_a_remedy(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create({"name": "main", "image": "nginx"})
        pod = await place.until(waiting_for("ErrImageNeverPull"))
        message = main_of(pod)["state"]["waiting"]["message"]
        assert "give spec.containers[0].command, or start the cluster with --stand-in" in message
        assert message in await place.event("Failed")
        await asyncio.sleep(600)
        (event,) = (await place.client.list(EVENTS)).items
        assert event["count"] == 1, "time does not help, so it is said once"


@in_virtual_time
async def test_a_stand_in_takes_the_place_of_an_image_without_a_command(tmp_path: Path) -> None:
    async with harness(tmp_path, stand_in=Nothing()) as place:
        await place.create({"name": "main", "image": "nginx", "readinessProbe": {"tcpSocket": {"port": 80}}})
        await place.until(ready)
        assert place.runtime.order == []


@in_virtual_time
async def test_a_program_that_is_not_there_fails_as_often_as_the_policy_allows(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        place.runtime.broken["web/main"] = StartError("no-such-program is not there", 127)
        await place.create(restartPolicy="Never")
        pod = await place.phase("Failed")
        ended = main_of(pod)["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (127, "StartError")
        assert "no-such-program is not there" in await place.event("Failed")


@in_virtual_time
async def test_a_readiness_gate_is_opened_by_others(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create(readinessGates=[{"conditionType": "example.com/fed"}])
        pod = await place.phase("Running")
        assert not ready(pod)
        fed = {"conditions": [{"type": "example.com/fed", "status": "True"}]}
        await place.client.patch_status(PODS, "web", "default", fed)
        await place.until(ready)


@in_virtual_time
async def test_no_status_is_lost_though_the_api_server_fails_again_and_again(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        failures = iter(range(40))

        def fault(request: Request) -> Exception | None:
            writes = request.method in ("PATCH", "DELETE") and "/pods/" in request.path
            if not writes or (number := next(failures, None)) is None or number % 4 == 3:
                return None
            return (
                Unreachable("no route"),
                ApiError(500, "InternalError", "out of order"),
                ApiError(409, "Conflict", "the object has been modified"),
            )[number % 3]

        place.wire.fault = fault
        for name in ("a", "b", "c"):
            await place.create(name=name, restartPolicy="Never")
            await place.phase("Running", name)
            place.runtime[f"{name}/main"].exit(3)
            await place.phase("Failed", name)
            await place.delete(name)
            await place.gone(name)


@in_virtual_time
async def test_what_happens_while_a_status_is_on_its_way_is_told_after_it(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        place.wire.slow = "PATCH"
        await place.create(restartPolicy="Never")
        await restarted(place, "web/main", 0)
        await asyncio.sleep(1)
        place.runtime["web/main"].exit(5)
        await asyncio.sleep(1)
        place.wire.gate.set()
        pod = await place.phase("Failed")
        assert main_of(pod)["state"]["terminated"]["exitCode"] == 5


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
@in_virtual_time
async def test_a_late_word_about_a_pod_does_not_touch_its_successor(tmp_path: Path, method: str) -> None:
    async with harness(tmp_path) as place:
        await add_node(place.client, "elsewhere")
        if method == "DELETE":
            await place.create()
            await place.until(ready)
        place.wire.slow = method
        if method == "PATCH":
            await place.create()
            await restarted(place, "web/main", 0)
        else:
            await place.delete()
        await asyncio.sleep(1)
        await place.delete(grace=0)
        successor = await place.create(nodeName="elsewhere")
        place.wire.gate.set()
        await asyncio.sleep(10)
        assert (await place.get())["metadata"]["uid"] == successor["metadata"]["uid"]
        assert (await place.get())["status"] == successor["status"]


@in_virtual_time
async def test_a_place_that_becomes_free_while_the_next_pod_is_refused_is_not_missed(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        place.runtime.stubborn.add("web/main")
        await place.create()
        await place.until(ready)
        allocate, tries = place.devices.allocate, 0

        async def slowly(pod: manifest.Pod) -> Sequence[Injection]:
            """Refuse as long as the other pod holds the card, and take longer to say so than it takes to end."""
            nonlocal tries
            tries += 1
            if "web" in place.devices.held:
                await asyncio.sleep(100)
                raise Refusal("metadata.annotations", "", "the card is taken")
            return await allocate(pod)

        place.devices.allocate = slowly  # type: ignore[method-assign]
        await place.delete(grace=0)
        await place.create(name="next")
        await place.until(ready, "next")
        assert tries == 2


@pytest.mark.parametrize("change", ["a taint", "less memory"])
@in_virtual_time
async def test_a_pod_that_its_node_does_not_take_again_after_a_restart_holds_no_card(
    tmp_path: Path, change: str
) -> None:
    async with harness(tmp_path) as place:
        place.devices.held.add("web")  # as agents do at a restart for pods that ran before
        if change == "a taint":
            taint = {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}}
            await place.client.patch(NODES, "node-1", "", taint)
        else:
            await place.client.patch_status(NODES, "node-1", "", {"allocatable": {"memory": "1Mi"}})
        await place.create(container(resources={"requests": {"memory": "1Gi"}}))
        await place.phase("Failed")
        assert place.devices.held == set()


@in_virtual_time
async def test_a_slow_start_is_told_of(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        place.runtime.takes = 30.0
        await place.create(container(workingDir="/srv"))
        pod = await place.until(waiting_for("ContainerCreating"), patience=5)
        assert pod["status"]["phase"] == "Pending"
        assert pod["status"]["startTime"]
        await place.until(ready)
        assert place.runtime["web/main"].spec.working_directory == "/srv"


@in_virtual_time
async def test_a_pod_that_must_not_be_root_is_not(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create(securityContext={"runAsNonRoot": True})
        pod = await place.until(waiting_for("CreateContainerConfigError"))
        assert "container has runAsNonRoot and would run as root" in main_of(pod)["state"]["waiting"]["message"]
        await place.create(name="other", securityContext={"runAsNonRoot": True, "runAsUser": 7, "fsGroup": 8})
        await place.until(ready, "other")
        spec = place.runtime["other/main"].spec
        assert (spec.uid, spec.gid, spec.groups) == (7, 0, (8,))


@in_virtual_time
async def test_events_that_repeat_are_counted(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create()
        for crash in range(4):
            await restarted(place, "web/main", crash)
            place.runtime["web/main"].exit(1)
        await asyncio.sleep(60)
        started = [each for each in (await place.client.list(EVENTS)).items if each["reason"] == "Started"]
        assert [(each["count"], each["involvedObject"]["fieldPath"]) for each in started] == [
            (5, "spec.containers{main}")
        ]


@in_virtual_time
async def test_a_restarted_kubelet_goes_on_as_after_a_reboot(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        store = place.store
        await place.create(name="service")
        await place.create(name="once", restartPolicy="Never")
        await place.create(name="done", restartPolicy="Never")
        await place.create(name="leaving", terminationGracePeriodSeconds=600)
        for name in ("service", "once", "done", "leaving"):
            await place.until(ready, name)
        place.runtime["done/main"].exit(0)
        await place.phase("Succeeded", "done")
        await place.create(name="late", activeDeadlineSeconds=1)
        await place.phase("Failed", "late")
        place.runtime["leaving/main"].stubborn = True
        await place.delete("leaving")
        await place.event("Killing")
    async with harness(tmp_path, store=store) as place:
        service = await place.until(lambda pod: ready(pod) and main_of(pod)["restartCount"] == 1, "service")
        last = main_of(service)["lastState"]["terminated"]
        assert (last["exitCode"], last["reason"]) == (255, "Unknown")
        await place.phase("Failed", "once")
        assert (await place.get("done"))["status"]["phase"] == "Succeeded"
        assert (await place.get("late"))["status"]["phase"] == "Failed"
        await place.gone("leaving")
        assert place.runtime.order == ["service/main"]
        await place.event("SandboxChanged")


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
@in_virtual_time
async def test_after_a_restart_init_containers_run_again_and_nothing_that_is_said_is_refused(
    tmp_path: Path, policy: str
) -> None:
    async with harness(tmp_path) as place:
        store = place.store
        await place.create(init=[container("setup")], restartPolicy=policy)
        await restarted(place, "web/setup", 0)
        place.runtime["web/setup"].exit(0)
        await place.until(ready)
    async with harness(tmp_path, store=store) as place:
        await restarted(place, "web/setup", 0)
        await place.until(lambda pod: pod["status"]["phase"] == "Pending")
        place.runtime["web/setup"].exit(0)
        pod = await place.until(lambda pod: ready(pod) and main_of(pod)["restartCount"] == 1)
        assert pod["status"]["initContainerStatuses"][0]["restartCount"] == 1


@in_virtual_time
async def test_after_a_restart_pods_that_ran_have_their_place_before_new_ones(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        store = place.store
        await place.create(container(resources={"requests": {"cpu": "3"}}), name="z-old")
        await place.until(ready, "z-old")
    async with harness(tmp_path, store=store, nodes=()) as place:
        await place.create(container(resources={"requests": {"cpu": "3"}}), name="a-new")
    async with harness(tmp_path, store=store) as place:
        await place.until(lambda pod: ready(pod) and main_of(pod)["restartCount"] == 1, "z-old")
        await place.phase("Failed", "a-new")


@in_virtual_time
async def test_who_asks_for_what_is_not_there_is_told_so(tmp_path: Path) -> None:
    async with harness(tmp_path) as place:
        await place.create({"name": "main", "image": "nginx"})
        await place.until(waiting_for("ErrImageNeverPull"))
        with pytest.raises(ApiError) as caught:
            await place.client.logs("web", "default")
        assert caught.value.code == 400
        assert caught.value.message == 'container "main" in pod "web" is waiting to start: ErrImageNeverPull'
        with pytest.raises(ApiError) as caught:
            await place.kubelet.execute(await place.get(), "main", ["ls"], stdin=False, tty=False)
        assert 'container not found ("main")' in caught.value.message


@in_virtual_time
async def test_at_rest_a_pod_has_no_task_of_its_own(tmp_path: Path) -> None:
    async with harness(tmp_path, runtime=Nothing(), stand_in=Nothing()) as place:
        before = len(asyncio.all_tasks())
        for number in range(50):
            await place.create(name=f"pod-{number}")
        for number in range(50):
            await place.phase("Running", f"pod-{number}")
        assert len(asyncio.all_tasks()) == before
        assert await place.events() == [], "nothing was created or started, so nothing is said to be"
        assert place.wire.count("PATCH", "/status") == 50
        await place.delete("pod-7")
        await place.gone("pod-7")
        async with asyncio.timeout(60):
            while len(place.kubelet) != 49:
                await asyncio.sleep(0.01)


class Hasty(ScriptedRuntime):
    """A runtime whose containers end by themselves within 20 ms, with the codes that a test wants."""

    def __init__(self, ends: Mapping[str, int], chance: random.Random) -> None:
        super().__init__()
        self._ends = ends
        self._chance = chance

    async def start(self, spec: Spec) -> Scripted:
        started = await super().start(spec)
        code = self._ends[spec.name.split("/")[1]]
        asyncio.get_running_loop().call_later(self._chance.choice([0.0, 0.005, 0.02]), started.exit, code)
        return started


@in_virtual_time
async def test_of_many_pods_that_end_as_soon_as_they_start_none_is_lost_or_run_twice(tmp_path: Path) -> None:
    chance = random.Random(16)
    ends = {f"pod-{number}": chance.choice([0, 1, 137]) for number in range(100)}
    async with harness(tmp_path, runtime=Hasty(ends, chance)) as place:
        async with asyncio.TaskGroup() as group:
            for name in ends:
                group.create_task(place.create(name=name, restartPolicy="Never"))
        leaving = chance.sample(sorted(ends), 30)
        for name in leaving:
            await place.delete(name)
            await asyncio.sleep(chance.uniform(0.0, 0.01))
        for name in leaving:
            await place.gone(name)
        for name in ends.keys() - set(leaving):
            pod = await place.phase("Failed" if ends[name] else "Succeeded", name)
            assert main_of(pod)["state"]["terminated"]["exitCode"] == ends[name]
        runs = {name: len(place.runtime.attempts(f"{name}/main")) for name in ends}
        assert {name for name in ends if runs[name] != 1} <= set(leaving)
        assert max(runs.values()) == 1
        assert place.devices.held == set()
