"""Many writers of one object."""

from __future__ import annotations

import threading

from tests.contracts.client import Client
from tests.contracts.space import Space, plain


def another(space: Space) -> Space:
    """The same namespace by another connection, for another thread."""
    known = space.client
    return Space(Client(known.address, known.authority, known.token), space.name)


def test_an_update_from_an_old_version_is_refused_and_changes_nothing(space: Space) -> None:
    first = space.post("configmaps", {"metadata": {"name": "a"}, "data": {"x": "1"}}).must(201)
    second = space.put("configmaps/a", {**first, "data": {"x": "2"}}).must(200)
    answer = space.put("configmaps/a", {**first, "data": {"x": "3"}})
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert space.get("configmaps/a").must(200) == second


def test_an_update_without_a_version_wins(space: Space) -> None:
    space.post("configmaps", {"metadata": {"name": "a"}, "data": {"x": "1"}}).must(201)
    space.put("configmaps/a", {"metadata": {"name": "a"}, "data": {"x": "2"}}).must(200)
    assert space.get("configmaps/a").must(200)["data"] == {"x": "2"}


def test_an_update_of_an_object_that_was_made_anew_is_refused(space: Space) -> None:
    old = space.post("configmaps", {"metadata": {"name": "a"}}).must(201)
    space.delete("configmaps/a").must()
    space.post("configmaps", {"metadata": {"name": "a"}}).must(201)
    old["metadata"].pop("resourceVersion")
    answer = space.put("configmaps/a", old)
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition" in answer.message


def test_a_patch_with_the_right_version_is_taken_once(space: Space) -> None:
    made = space.post("configmaps", {"metadata": {"name": "a"}}).must(201)
    patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "1"}}
    space.merge("configmaps/a", patch).must(200)
    assert space.merge("configmaps/a", {**patch, "data": {"x": "2"}}).code == 409


def test_the_status_of_a_pod_group_is_patched_as_a_part_of_it_and_by_version(space: Space) -> None:
    made = space.post("podgroups", {"metadata": {"name": "a"}, "spec": {"minMember": 2}}).must(201)
    condition = {"type": "Unschedulable", "status": "True", "transitionID": "1", "reason": "r", "message": "m"}
    status = {"phase": "Inqueue", "running": 0, "conditions": [condition]}
    patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "status": status}
    shown = space.merge("podgroups/a", patch).must(200)
    assert shown["status"] == status
    assert shown["spec"] == made["spec"]
    assert shown["metadata"]["generation"] == made["metadata"]["generation"] + 1  # it is a part like any other
    answer = space.merge("podgroups/a", {**patch, "status": {"phase": "Running"}})
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert space.get("podgroups/a").must(200) == shown
    assert space.merge("podgroups/a/status", {"status": {"phase": "Running"}}).code == 404
    # The same patch again with the new version changes nothing, not even the version.
    patch["metadata"] = {"resourceVersion": shown["metadata"]["resourceVersion"]}
    assert space.merge("podgroups/a", patch).must(200) == shown


def test_the_status_of_a_queue_is_patched_beside_it_and_by_version(space: Space) -> None:
    name = str(space)
    made = space.post("queues", {"metadata": {"name": name}, "spec": {}, "status": {"state": "Open"}}).must(201)
    try:
        assert "status" not in made
        status = {"state": "Open", "allocated": {"cpu": "4", "nvidia.com/gpu": "1"}}
        patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "status": status}
        shown = space.merge(f"queues/{name}/status", {**patch, "spec": {"weight": 9}}).must(200)
        assert (shown["status"], shown["spec"]) == (status, made["spec"])
        assert shown["metadata"]["generation"] == made["metadata"]["generation"]
        assert space.merge(f"queues/{name}/status", patch).code == 409
        gone = {"status": {"allocated": {"cpu": "2", "nvidia.com/gpu": None}}}
        assert space.merge(f"queues/{name}/status", gone).must(200)["status"]["allocated"] == {"cpu": "2"}
    finally:
        space.delete(f"queues/{name}").must(200)


def test_a_deletion_by_uid_and_version(space: Space) -> None:
    made = space.post("configmaps", {"metadata": {"name": "a"}}).must(201)["metadata"]
    space.merge("configmaps/a", {"data": {"x": "1"}}).must(200)
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    stale = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    assert space.delete("configmaps/a", {**options, "preconditions": stale}).code == 409
    space.delete("configmaps/a", {**options, "preconditions": {"uid": made["uid"]}}).must(200)
    assert space.gone("configmaps/a")


def test_of_many_bindings_one_wins(space: Space) -> None:
    uid = space.post("pods", {"metadata": {"name": "a"}, "spec": plain()}).must(201)["metadata"]["uid"]
    codes: dict[int, int] = {}

    def bind(index: int) -> None:
        mine = another(space)
        metadata = {"name": "a", "uid": uid, "annotations": {"by": str(index)}}
        target = {"kind": "Node", "name": f"n-{index}"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        codes[index] = mine.post("pods/a/binding", binding).code
        mine.client.close()

    threads = [threading.Thread(target=bind, args=(index,)) for index in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(codes.values()) == [201] + [409] * 7
    winner = next(index for index, code in codes.items() if code == 201)
    bound = space.get("pods/a").must(200)
    assert bound["spec"]["nodeName"] == f"n-{winner}"
    assert bound["metadata"]["annotations"] == {"by": str(winner)}


def test_no_count_is_lost_when_writers_retry(space: Space) -> None:
    space.post("configmaps", {"metadata": {"name": "a"}, "data": {"count": "0"}}).must(201)

    def count() -> None:
        mine = another(space)
        done = 0
        while done < 10:
            found = mine.get("configmaps/a").must(200)
            found["data"]["count"] = str(int(found["data"]["count"]) + 1)
            done += mine.put("configmaps/a", found).code == 200
        mine.client.close()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert space.get("configmaps/a").must(200)["data"] == {"count": "40"}


def test_patches_of_many_writers_all_count(space: Space) -> None:
    space.post("configmaps", {"metadata": {"name": "a"}}).must(201)

    def label(index: int) -> None:
        mine = another(space)
        for turn in range(5):
            mine.merge("configmaps/a", {"data": {f"k-{index}-{turn}": "v"}}).must(200)
        mine.client.close()

    threads = [threading.Thread(target=label, args=(index,)) for index in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(space.get("configmaps/a").must(200)["data"]) == 20


def test_generated_names_are_all_different(space: Space) -> None:
    names = {
        space.post("configmaps", {"metadata": {"generateName": "x-"}}).must(201)["metadata"]["name"] for _ in range(50)
    }
    assert len(names) == 50


def test_a_long_prefix_is_cut_so_that_the_name_stays_short(space: Space) -> None:
    name = space.post("configmaps", {"metadata": {"generateName": "a" * 100}}).must(201)["metadata"]["name"]
    assert name[:58] == "a" * 58
    assert len(name) == 63
