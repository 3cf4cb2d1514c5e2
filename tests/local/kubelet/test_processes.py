"""Pods with real processes: what a container sees, prints and leaves behind."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from subak.dialects import Injection
from subak.local.runtime.capability import obstacle
from subak.local.runtime.cgroups import Cgroups
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.stand_in import StandIns
from subak.model.mount import Mount
from tests.support.kubelet.harness import Harness, harness
from tests.support.kubelet.pods import container
from tinykube.resource import CONFIG_MAPS, PODS
from tinykube.server.kubelet import LogOptions

PATIENCE = 60.0


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Harness]:
    problem = await obstacle()
    if problem:
        pytest.skip(problem)
    runtime = Namespaces()
    async with harness(tmp_path, runtime=runtime, stand_in=StandIns(runtime), processes=True, clock=time.time) as made:
        yield made


def shell(script: str, name: str = "main", **fields: Any) -> dict[str, Any]:
    return container(name, command=["sh", "-c", script], **fields)


async def phase(place: Harness, phase: str, name: str = "web") -> dict[str, Any]:
    return await place.until(lambda pod: pod["status"]["phase"] == phase, name, PATIENCE)


async def ready(place: Harness) -> dict[str, Any]:
    return await place.until(
        lambda pod: any(
            each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ())
        ),
        patience=PATIENCE,
    )


async def printed(place: Harness, container: str = "main", **options: Any) -> str:
    chunks = await place.kubelet.logs(await place.get(), LogOptions(container=container, **options))
    return b"".join([chunk async for chunk in chunks]).decode()


async def run(place: Harness, *command: str) -> tuple[int, str]:
    session = await place.kubelet.execute(await place.get(), "main", command, stdin=False, tty=False)
    output = b"".join([data async for _, data in session.output()])
    return await session.wait(), output.decode()


async def test_a_job_sees_its_environment_and_volumes_and_leaves_its_log(place: Harness, tmp_path: Path) -> None:
    await place.add(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"level": "info"}})
    place.devices.injection = Injection(
        {"CARD": "GPU-1"}, [Mount("/usr/lib/x.so", "/no/such/library.so", read_only=True)]
    )
    mounts = [{"name": "work", "mountPath": "/work"}, {"name": "settings", "mountPath": "/etc/settings"}]
    await place.create(
        shell("echo $ME on $CARD; cat /work/gift /etc/settings/level", env=[ME], volumeMounts=mounts),
        init=[shell("echo from the first > /work/gift", "first", volumeMounts=mounts)],
        volumes=[{"name": "work", "emptyDir": {}}, {"name": "settings", "configMap": {"name": "settings"}}],
        restartPolicy="Never",
    )
    pod = await phase(place, "Succeeded")
    assert await printed(place) == "web on GPU-1\nfrom the first\ninfo"
    assert [each["ready"] for each in pod["status"]["initContainerStatuses"]] == [True]
    assert list((tmp_path / "pods").iterdir()) == [], "volumes go with the pod's life"
    await place.delete()
    await place.gone(patience=PATIENCE)
    await empty(tmp_path / "logs")


async def test_a_container_that_uses_more_than_its_limit_of_memory_is_killed_and_says_so(place: Harness) -> None:
    cgroups = Cgroups()
    if cgroups.obstacle:
        pytest.skip(f"no cgroups can be made here: {cgroups.obstacle}")
    cgroups.close()
    await place.create(
        shell("head -c 64M /dev/zero >/tmp/file", resources={"limits": {"memory": "32Mi"}}),
        shell("head -c 64M /dev/zero >/tmp/file; exit 1", "unlimited"),
        restartPolicy="Never",
    )
    pod = await phase(place, "Failed")
    ended = {each["name"]: each["state"]["terminated"] for each in pod["status"]["containerStatuses"]}
    assert (ended["main"]["reason"], ended["main"]["exitCode"]) == ("OOMKilled", 137)
    assert (ended["unlimited"]["reason"], ended["unlimited"]["exitCode"]) == ("Error", 1)


ME = {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


async def empty(directory: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        while list(directory.iterdir()):
            await asyncio.sleep(0.02)


async def test_a_service_is_probed_entered_and_asked_to_end(place: Harness) -> None:
    script = "trap 'echo bye > /dev/termination-log; exit 7' TERM; touch /tmp/up; while :; do sleep 0.05; done"
    probe = {"exec": {"command": ["test", "-e", "/tmp/up"]}, "periodSeconds": 1}
    await place.create(shell(script, readinessProbe=probe), terminationGracePeriodSeconds=20)
    await ready(place)
    assert await run(place, "sh", "-c", "hostname; exit 3") == (3, "web\n")
    final: list[dict[str, Any]] = []
    place.store.subscribe(lambda change: final.append(change.object) if change.kind.plural == "pods" else None)
    await place.delete()
    await place.gone(patience=PATIENCE)
    ended = final[-1]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (7, "Error", "bye\n")


async def test_settings_change_while_the_pod_runs(place: Harness) -> None:
    await place.add(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"level": "info"}})
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    await place.create(
        shell(
            "sleep infinity",
            volumeMounts=[{"name": "settings", "mountPath": "/settings"}, {"name": "me", "mountPath": "/me"}],
        ),
        volumes=[
            {"name": "settings", "configMap": {"name": "settings"}},
            {"name": "me", "downwardAPI": {"items": items}},
        ],
        terminationGracePeriodSeconds=0,
    )
    await ready(place)
    assert await run(place, "cat", "/settings/level") == (0, "info")
    await place.client.patch(CONFIG_MAPS, "settings", "default", {"data": {"level": "debug"}})
    await shows(place, "/settings/level", "debug")
    await place.client.patch(PODS, "web", "default", {"metadata": {"labels": {"colour": "blue"}}})
    await shows(place, "/me/labels", 'colour="blue"')


async def shows(place: Harness, path: str, expected: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await run(place, "cat", path) != (0, expected):
            await asyncio.sleep(0.05)


async def test_a_sick_container_is_restarted_and_its_last_words_are_kept(place: Harness) -> None:
    probe = {"exec": {"command": ["test", "-e", "/tmp/well"]}, "periodSeconds": 1}
    await place.create(
        shell(
            "echo attempt; touch /tmp/well; sleep infinity",
            startupProbe={**probe, "failureThreshold": 30},
            livenessProbe={**probe, "failureThreshold": 1},
        ),
        terminationGracePeriodSeconds=0,
    )
    await ready(place)
    await run(place, "rm", "/tmp/well")
    pod = await place.until(
        lambda pod: pod["status"].get("containerStatuses", [{"restartCount": 0}])[0]["restartCount"] == 1,
        patience=PATIENCE,
    )
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] in (137, 143)
    assert await printed(place, previous=True) == "attempt\n"
    assert "Killing: Container main failed liveness probe, will be restarted" in await place.events("Killing")
    assert any(text.startswith("Unhealthy: Liveness probe failed") for text in await place.events())


async def test_a_slow_starter_is_not_ready_before_it_says_so(place: Harness) -> None:
    startup = {"exec": {"command": ["test", "-e", "/tmp/up"]}, "periodSeconds": 1, "failureThreshold": 30}
    script = "while [ ! -e /shared/go ]; do sleep 0.05; done; touch /tmp/up; sleep infinity"
    await place.create(
        shell(script, startupProbe=startup, volumeMounts=[{"name": "shared", "mountPath": "/shared"}]),
        volumes=[{"name": "shared", "emptyDir": {}}],
        terminationGracePeriodSeconds=0,
    )
    pod = await phase(place, "Running")
    main = pod["status"]["containerStatuses"][0]
    assert (main["started"], main["ready"]) == (False, False)
    await run(place, "touch", "/shared/go")
    await ready(place)


async def test_a_container_whose_first_step_fails_has_to_go(place: Harness) -> None:
    hook = {"postStart": {"exec": {"command": ["false"]}}}
    await place.create(shell("sleep infinity", lifecycle=hook), restartPolicy="Never", terminationGracePeriodSeconds=0)
    await phase(place, "Failed")
    assert await place.events("FailedPostStartHook") == ["FailedPostStartHook: PostStartHook failed"]


async def test_what_a_killed_kubelet_left_behind_is_removed(tmp_path: Path) -> None:
    for path in ("pods/old/volumes", "logs/default_gone_old/main"):
        (tmp_path / path).mkdir(parents=True)
    async with harness(tmp_path, processes=True, clock=time.time):
        await empty(tmp_path / "pods")
        await empty(tmp_path / "logs")


async def test_a_pod_whose_node_is_away_keeps_what_it_has_on_disk(tmp_path: Path) -> None:
    async with harness(tmp_path, processes=True, clock=time.time) as before:
        pod = await before.create(nodeName="away")
    for uid in (pod["metadata"]["uid"], "old"):
        (tmp_path / "pods" / uid / "volumes").mkdir(parents=True)
    async with harness(tmp_path, store=before.store, processes=True, clock=time.time):
        async with asyncio.timeout(PATIENCE):
            while (tmp_path / "pods" / "old").exists():
                await asyncio.sleep(0.01)
        assert (tmp_path / "pods" / pod["metadata"]["uid"] / "volumes").is_dir()


async def test_a_failed_job_may_show_the_end_of_its_log_as_its_message(place: Harness) -> None:
    await place.create(
        shell("echo out of paper; exit 4", terminationMessagePolicy="FallbackToLogsOnError"), restartPolicy="Never"
    )
    pod = await phase(place, "Failed")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (4, "out of paper\n")


async def test_a_log_is_followed_to_the_end(place: Harness) -> None:
    await place.create(shell("echo one; sleep 0.3; echo two"), restartPolicy="Never")
    await phase(place, "Running")
    assert await printed(place, follow=True) == "one\ntwo\n"


async def test_a_program_that_is_not_there_is_named(place: Harness) -> None:
    await place.create(container(command=["no-such-program"]), restartPolicy="Never")
    pod = await phase(place, "Failed")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (127, "StartError")
    assert "no-such-program" in ended["message"]


async def test_a_hook_runs_before_the_end_and_in_time(place: Harness, tmp_path: Path) -> None:
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hooked > /shared/hook"]}}}
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    await place.create(
        shell("sleep infinity", lifecycle=hook, volumeMounts=[{"name": "shared", "mountPath": "/shared"}]),
        volumes=[{"name": "shared", "hostPath": {"path": str(shared), "type": "Directory"}}],
        terminationGracePeriodSeconds=3,
    )
    await ready(place)
    await place.delete()
    await place.gone(patience=PATIENCE)
    assert (shared / "hook").read_text() == "hooked\n"


async def test_real_cards_without_their_library_are_not_used(place: Harness) -> None:
    place.devices.make_believe = False
    place.devices.injection = Injection({}, [Mount("/usr/lib/x.so", "/no/such/library.so", read_only=True)])
    await place.create(shell("true"))
    pod = await place.until(
        lambda pod: (
            "waiting" in pod["status"].get("containerStatuses", [{"state": {}}])[0]["state"]
            and pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerError"
        ),
        patience=PATIENCE,
    )
    assert "/no/such/library.so" in pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"]


async def test_a_pod_runs_as_the_user_that_it_names(place: Harness) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    await place.create(shell("id -u; id -g"), restartPolicy="Never", securityContext=NOBODY)
    await phase(place, "Succeeded")
    assert await printed(place) == "65534\n65533\n"


NOBODY = {"runAsUser": 65534, "runAsGroup": 65533, "runAsNonRoot": True}


async def test_a_pod_whose_volume_is_deeper_than_any_path_ends(place: Harness, tmp_path: Path) -> None:
    dig = "import os; os.chdir('/v'); [(os.mkdir('d' * 200), os.chdir('d' * 200)) for _ in range(1_100)]"
    main = container(command=["python3", "-c", dig], volumeMounts=[{"name": "v", "mountPath": "/v"}])
    await place.create(main, volumes=[{"name": "v", "emptyDir": {}}], restartPolicy="Never")
    await phase(place, "Succeeded")
    await empty(tmp_path / "pods")


async def test_long_commands_are_run_by_exec_and_by_probes(place: Harness) -> None:
    command = ["sh", "-c", "echo ${#1}; test ${#1} = 100000", "sh", "x" * 100_000]
    await place.create(shell("sleep infinity", readinessProbe={"exec": {"command": command}}))
    await ready(place)
    assert await run(place, *command) == (0, "100000\n")
