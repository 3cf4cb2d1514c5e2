"""Volumes that lie in other volumes, where somebody else may write."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import StartError
from subak.model.mount import Mount, Purpose
from tests.local.runtime.containers import SWAP, run, running


@pytest.fixture(params=["directory", "file", "memory"])
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What is mounted in another volume: its source, empty for one in memory."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("f")
    return "" if request.param == "memory" else str(tmp_path / request.param)


async def test_the_place_of_a_volume_in_another_is_made_there(runtime: Namespaces, tmp_path: Path, inner: str) -> None:
    (tmp_path / "outer" / "real").mkdir(parents=True)
    for path in (tmp_path / "outer", tmp_path / "outer" / "real"):
        path.chmod(0o777)
    (tmp_path / "outer" / "link").symlink_to("real")
    mounts = [Mount("/a", str(tmp_path / "outer")), Mount("/a/link/b/c", inner)]
    for _ in range(2):  # it is made the first time, and there the second
        outcome = await run(runtime, "test -e /a/real/b/c && grep -c ' /a/real/b/c ' /proc/mounts", mounts=mounts)
        assert outcome.stdout == "1\n", outcome
    assert stat.S_IMODE((tmp_path / "outer/real/b").stat().st_mode) == 0o755


@pytest.mark.parametrize("target", ["/usr", "/.machine/tmp", "../proc", "/proc/self/cwd"])
async def test_no_link_in_a_volume_leads_another_volume_out_of_it(
    runtime: Namespaces, tmp_path: Path, target: str, inner: str
) -> None:
    """Whoever writes to the outer one could cover the container's programs, or have the inner one vanish."""
    (tmp_path / "outer").mkdir()
    (tmp_path / "outer" / "link").symlink_to(target)
    for place in ("link", "link/new"):
        mounts = [Mount("/a", str(tmp_path / "outer")), Mount(f"/a/{place}", inner)]
        why = f"mount at /a/{place}: a link on the way leads out of the volume at /a"
        with pytest.raises(StartError, match=f"^{why}$"):
            await run(runtime, "ls /", mounts=mounts)


async def test_nor_while_it_changes(runtime: Namespaces, tmp_path: Path) -> None:
    for name in ("outer/part", "inner", "deepest"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outer").chmod(0o777)
    (tmp_path / "outer" / "link").symlink_to("/usr")
    outer = Mount("/v", str(tmp_path / "outer"))
    mounts = [outer, Mount("/v/part", str(tmp_path / "inner")), Mount("/v/part/c", str(tmp_path / "deepest"))]
    (tmp_path / "inner").chmod(0o777)
    seen = set()
    async with running(runtime, SWAP, mounts=[outer]):
        for _ in range(30):
            try:
                outcome = await run(runtime, "cut -d' ' -f2 /proc/mounts; ls /usr", mounts=mounts)
                lines = outcome.stdout.split()
                assert "/usr/c" not in lines
                assert "bin" in lines
                seen.add("mounted")
            except StartError as error:
                seen.add(error.message)
    assert seen == {"mounted", "mount at /v/part: a link on the way leads out of the volume at /v"}


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("/run", "/var/run/part/bin"), ("/run/lock", "/var/lock/part/bin"), ("/var/run", "/run/part/bin")],
)
async def test_nor_by_another_name_of_the_outer_one(
    runtime: Namespaces, tmp_path: Path, outer: str, inner: str
) -> None:
    (tmp_path / "outer").mkdir()
    (tmp_path / "outer" / "part").symlink_to("/usr")
    with pytest.raises(StartError, match=f"^mount at {inner}: a link on the way leads out of the volume at "):
        await run(runtime, "ls /", mounts=[Mount(outer, str(tmp_path / "outer")), Mount(inner, "")])


@pytest.mark.parametrize(
    "way", ["/proc/self/root", "/proc/1/cwd", "/proc/thread-self/root", "/dev/fd/9", "/dev/stdout"]
)
async def test_what_belongs_to_a_process_is_no_place_for_a_mount(runtime: Namespaces, tmp_path: Path, way: str) -> None:
    with pytest.raises(StartError, match=f"^mount at {way}/v: what belongs to a process is no place for it$"):
        await run(runtime, "ls /", mounts=[Mount(f"{way}/v", str(tmp_path))])


@pytest.mark.parametrize(
    "spelled",
    [
        "/run/limits",
        "//run/limits",
        "/run//limits",
        "/run/./x/../limits",
        "/var/run/limits",
        "/var/../var//run/limits",
        "/var/lock/../limits",
    ],
)
async def test_what_the_node_has_made_is_on_top_however_its_place_is_spelled(
    runtime: Namespaces, tmp_path: Path, spelled: str
) -> None:
    for name in ("node", "pod"):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(0o644)
    limits = Mount("/run/limits", str(tmp_path / "node"), read_only=True, purpose=Purpose.LIMITS)
    for mounts in ([limits, Mount(spelled, str(tmp_path / "pod"))], [Mount(spelled, str(tmp_path / "pod")), limits]):
        assert (await run(runtime, "cat /run/limits", mounts=mounts)).stdout == "node"


async def test_mounts_may_come_in_any_order(runtime: Namespaces, tmp_path: Path) -> None:
    places = {"/v/a/b/c": "c", "/v": "v", "/z//y": "y", "//v/a/./b/": "b", "/.memory": "m"}
    for name in places.values():
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
        (tmp_path / name / "name").write_text(name)
    mounts = [Mount(place, str(tmp_path / name)) for place, name in places.items()]
    outcome = await run(runtime, "cat /v/a/b/c/name /v/name /z/y/name /v/a/b/name /.memory/name", mounts=mounts)
    assert outcome.stdout == "cvybm", outcome


async def test_a_volume_around_a_place_hides_the_links_of_the_view(runtime: Namespaces, tmp_path: Path) -> None:
    for name in ("var", "inner"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
        (tmp_path / name / "name").write_text(name)
    mounts = [Mount("/var", str(tmp_path / "var")), Mount("/var/run/x", str(tmp_path / "inner"))]
    assert (await run(runtime, "cat /var/run/x/name; ls /run/x", mounts=mounts)).stdout == "inner"
    assert (tmp_path / "var/run/x").is_dir()


@pytest.mark.parametrize("count", [pytest.param(1900, marks=pytest.mark.long), 100_000])
async def test_a_place_of_thousands_of_directories_is_refused_with_a_reason(
    runtime: Namespaces, tmp_path: Path, count: int
) -> None:
    with pytest.raises(StartError, match="File name too long|maximum recursion depth"):
        await run(runtime, "true", mounts=[Mount("/a" * count, str(tmp_path))])
