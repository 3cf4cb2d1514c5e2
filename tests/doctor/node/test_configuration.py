"""What the files of container runtimes say about NRI and CDI."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.doctor import CannotTell
from subak.doctor.node.configuration import Settings, settings
from subak.doctor.node.runtime import CONTAINERD, CRIO, Runtime
from subak.doctor.node.toml import merged
from tests.doctor.node.host import Host

CONFIG = "/etc/containerd/config.toml"
NRI = '[plugins."io.containerd.nri.v1.nri"]\n'


def containerd(host: Host, version: str = "2.3.7") -> Settings:
    return settings(host.computer, Runtime(CONTAINERD, version, "", CONFIG))


def crio(host: Host) -> Settings:
    return settings(host.computer, Runtime(CRIO, "1.34.0", "", "/etc/crio/crio.conf"))


def test_without_a_file_the_defaults_of_the_version_hold(host: Host) -> None:
    new, old, unknown = containerd(host), containerd(host, "1.7.27"), containerd(host, "")
    assert (new.nri, new.cdi, new.validator, new.files) == (True, True, False, ())
    assert (old.nri, old.cdi) == (False, False)
    assert (unknown.nri, unknown.cdi) == (None, None)


@pytest.mark.parametrize(
    ("cri", "version"), [("io.containerd.grpc.v1.cri", 2), ("io.containerd.cri.v1.runtime", 3)], ids=["v2", "v3"]
)
def test_both_forms_of_containerds_file(host: Host, cri: str, version: int) -> None:
    validator = '[plugins."io.containerd.nri.v1.nri".default_validator]\nenable = true\n'
    host.write(
        CONFIG,
        f"version = {version}\n{NRI}disable = false\nsocket_path = '/run/other.sock'\n{validator}"
        f"[plugins.'{cri}']\nenable_cdi = true\ncdi_spec_dirs = ['/etc/my-cdi']\n",
    )
    found = containerd(host, "1.7.27")
    assert (found.nri, found.validator, found.cdi) == (True, True, True)
    assert (found.nri_socket, found.cdi_folders, found.files) == ("/run/other.sock", ("/etc/my-cdi",), (CONFIG,))


def test_imports_count_more_than_the_file_and_may_import_in_turn(host: Host) -> None:
    host.write(CONFIG, f'version = 2\nimports = ["conf.d/*.toml", "{CONFIG}"]\n{NRI}disable = true\n')
    host.write("/etc/containerd/conf.d/10-nri.toml", f"imports = ['/etc/more.toml']\n{NRI}disable = false\n")
    host.write("/etc/containerd/conf.d/20-other.toml", "version = 2\n[debug]\nlevel = 'info'\n")
    host.write("/etc/more.toml", f"{NRI}disable_connections = true\n")
    found = containerd(host)
    assert (found.nri, found.connections) == (True, False)
    assert found.files == (
        CONFIG,
        "/etc/containerd/conf.d/10-nri.toml",
        "/etc/containerd/conf.d/20-other.toml",
        "/etc/more.toml",
    )


def test_a_plugin_that_is_disabled_as_a_whole(host: Host) -> None:
    host.write(
        CONFIG, f'disabled_plugins = ["io.containerd.nri.v1.nri"]\nimports = ["/etc/a.toml"]\n{NRI}disable = false'
    )
    host.write("/etc/a.toml", 'disabled_plugins = ["io.containerd.internal.v1.opt"]')
    assert containerd(host).nri is False


def test_a_file_that_is_no_toml(host: Host) -> None:
    host.write(CONFIG, "version = = 2")
    with pytest.raises(CannotTell, match="config.toml"):
        containerd(host)


def test_crio_and_its_folder(host: Host) -> None:
    assert (crio(host).nri, crio(host).cdi) == (None, True)
    host.write("/etc/crio/crio.conf", "[crio.nri]\nenable_nri = false\n")
    host.write("/etc/crio/crio.conf.d/10-nri.conf", "[crio.nri]\nenable_nri = true\n")
    switch = "[crio.nri.default_validator]\nnri_enable_default_validator = true\n"
    host.write("/etc/crio/crio.conf.d/20-validator.conf", switch)
    found = crio(host)
    assert (found.nri, found.validator) == (True, True)
    assert found.files[-1] == "/etc/crio/crio.conf.d/20-validator.conf"


tables = st.recursive(st.booleans() | st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner))
whole = st.dictionaries(st.sampled_from("abc"), tables)


@given(whole, whole)
def test_merging_keeps_what_only_one_says_and_prefers_the_new(old: dict[str, object], new: dict[str, object]) -> None:
    both = merged(old, new)
    assert both.keys() == old.keys() | new.keys()
    for key in both:
        if key not in new:
            assert both[key] == old[key]
        elif not (isinstance(old.get(key), dict) and isinstance(new[key], dict)):
            assert both[key] == new[key]
    assert merged(both, new) == both
