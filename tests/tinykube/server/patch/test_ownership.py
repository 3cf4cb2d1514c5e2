from __future__ import annotations

from typing import Any

import pytest

from tinykube.server.patch import ownership
from tinykube.server.patch.ownership import BadManagedFields, Entry, Owners

NEWER, OLDER = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"


def owners(*entries: Entry) -> Owners:
    return {entry.key: entry for entry in entries}


def updater(manager: str, fields: Any, time: str = OLDER, version: str = "v1", subresource: str = "") -> Entry:
    return Entry(manager, "Update", version, subresource, fields, time)


def test_entries_are_written_as_they_were_read() -> None:
    written = [
        {"manager": "a", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}}},
        {
            "manager": "b", "operation": "Update", "apiVersion": "v1", "time": OLDER, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:b": {}}, "subresource": "status",
        },
    ]  # fmt: skip
    assert ownership.write(ownership.read(written)) == written


def test_applied_entries_come_first_then_the_oldest() -> None:
    one, two = updater("z", {"f:a": {}}), updater("a", {"f:b": {}}, NEWER)
    applied = Entry("m", "Apply", "v1", "", {"f:c": {}}, NEWER)
    status = updater("z", {"f:d": {}}, subresource="status")
    names = [(each["manager"], each["operation"]) for each in ownership.write(owners(two, status, one, applied))]
    assert names == [("m", "Apply"), ("z", "Update"), ("z", "Update"), ("a", "Update")]


def test_what_is_applied_is_the_same_writers_in_every_version() -> None:
    first, second = Entry("m", "Apply", "v1", "", {}), Entry("m", "Apply", "v2", "", {})
    assert first.key == second.key
    assert updater("m", {}).key != updater("m", {}, version="v2").key


@pytest.mark.parametrize(
    "entry",
    [
        {"operation": "Steal", "apiVersion": "v1", "fieldsType": "FieldsV1"},
        {"operation": "Update", "fieldsType": "FieldsV1"},
        {"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV2"},
        {"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"nonsense": {}}},
        {"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:a": 3}},
    ],
)
def test_nonsense_is_not_taken_from_clients(entry: Any) -> None:
    with pytest.raises(BadManagedFields):
        ownership.read_foreign([entry])


def test_who_owns_nothing_any_more_is_gone() -> None:
    before = owners(
        updater("a", {"f:a": {}}), updater("b", {"f:a": {}, "f:b": {}}), updater("c", {"f:c": {}}, version="v0")
    )
    assert ownership.disowned(before, {"f:a": {}}, "v1") == owners(updater("b", {"f:b": {}}))


def test_the_oldest_of_more_than_ten_updaters_become_one() -> None:
    times = [f"2026-01-{day:02}T00:00:00Z" for day in range(1, 13)]
    many = [updater(f"m{index:02}", {f"f:{index}": {}}, time) for index, time in enumerate(times)]
    applied = Entry("applier", "Apply", "v1", "", {"f:x": {}}, OLDER)
    assert ownership.capped(owners(applied, *many[:10])) == owners(applied, *many[:10])
    joined = updater("ancient-changes", {"f:0": {}, "f:1": {}, "f:2": {}}, times[2])
    assert ownership.capped(owners(applied, *many)) == owners(applied, joined, *many[3:])


def test_versions_are_not_joined_with_each_other() -> None:
    many = [updater(f"m{index:02}", {f"f:{index}": {}}) for index in range(10)]
    other = updater("a", {"f:old": {}}, version="v0")
    joined = updater("ancient-changes", {"f:0": {}, "f:1": {}})
    assert ownership.capped(owners(other, *many)) == owners(other, joined, *many[2:])


def test_writers_are_told_with_what_sets_them_apart() -> None:
    assert Entry("m", "Apply", "v1", "", {}).named() == '"m"'
    assert updater("m", {}).named() == '"m" using v1'
    assert updater("m", {}, subresource="status").named() == '"m" with subresource "status" using v1'
