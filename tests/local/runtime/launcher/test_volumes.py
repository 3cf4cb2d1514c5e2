"""Volumes that lie in other volumes, where somebody else may write."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import StartError
from subak.model.mount import Mount
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
