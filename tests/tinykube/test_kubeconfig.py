"""Kubeconfig files as people have them, and what they are told when one is wrong."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from tinykube.endpoint import ConfigError, Endpoint, Fixed, TokenFile
from tinykube.kubeconfig import in_cluster, load
from tinykube.plugin import Plugin


def config(
    user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, name: str = "x"
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": f"c-{name}", "cluster": {"server": "https://h:6443", **(cluster or {})}}],
        "users": [{"name": f"u-{name}", "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": f"c-{name}", "user": f"u-{name}", "namespace": "team"}}],
    }


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def written(content: Any, name: str = "config") -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    return written


def header(endpoint: Endpoint) -> str:
    assert isinstance(endpoint.credentials, Fixed)
    return endpoint.credentials.known.headers["authorization"]


def test_server_namespace_and_token_of_the_current_context(write: Any) -> None:
    endpoint = load(write(config({"token": "t"})))
    assert (endpoint.server, endpoint.namespace, header(endpoint)) == ("https://h:6443", "team", "Bearer t")


def test_another_context_can_be_chosen(write: Any) -> None:
    content = config({"token": "t"})
    content["contexts"].append({"name": "other", "context": {"cluster": "c-x", "user": "u-x"}})
    assert load(write(content), context="other").namespace == "default"


def test_certificates_may_be_inline_or_beside_the_file(write: Any, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"CA")
    inline = {"client-certificate-data": base64.b64encode(b"CRT").decode(), "client-key": "me.key"}
    (tmp_path / "me.key").write_bytes(b"KEY")
    endpoint = load(write(config(inline, {"certificate-authority": "ca.crt"})))
    assert endpoint.authority == b"CA"
    assert endpoint.authority_file is not None
    assert endpoint.authority_file.read_bytes() == b"CA"
    assert isinstance(endpoint.credentials, Fixed)
    assert (endpoint.credentials.known.certificate, endpoint.credentials.known.key) == (b"CRT", b"KEY")


def test_a_token_file_is_found_beside_the_kubeconfig(write: Any, tmp_path: Path) -> None:
    assert isinstance(load(write(config({"tokenFile": "token"}))).credentials, TokenFile)


def test_of_several_files_the_first_wins(write: Any) -> None:
    first = write({"current-context": "y", "users": [{"name": "u-y", "user": {"token": "first"}}]}, "a")
    second = write(config({"token": "second"}, name="y"), "b")
    missing = first.parent / "missing"
    endpoint = load(environ={"KUBECONFIG": f"{missing}:{first}:{second}"})
    assert (endpoint.server, header(endpoint)) == ("https://h:6443", "Bearer first")


def test_without_kubeconfig_the_one_at_home_is_read(write: Any, tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    write(config({"token": "home"}), ".kube/config")
    assert header(load(environ={"HOME": str(tmp_path)})) == "Bearer home"


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    for name, content in (("token", "t"), ("ca.crt", "CA"), ("namespace", "team\n")):
        (tmp_path / name).write_text(content)
    endpoint = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert (endpoint.server, endpoint.namespace, endpoint.authority) == ("https://[fd00::1]:443", "team", b"CA")


def test_impersonation_and_insecure_servers(write: Any) -> None:
    content = config({"token": "t", "as": "boss", "as-groups": ["g"]}, {"insecure-skip-tls-verify": True})
    endpoint = load(write(content))
    assert endpoint.impersonate == (("impersonate-user", "boss"), ("impersonate-group", "g"))
    assert not endpoint.verify


def test_a_credential_program_is_found_beside_the_kubeconfig(write: Any, tmp_path: Path) -> None:
    program = {"command": "./login", "args": ["--now"], "apiVersion": "client.authentication.k8s.io/v1"}
    endpoint = load(write(config({"exec": program})))
    assert isinstance(endpoint.credentials, Plugin)
    assert endpoint.credentials.argv == [str(tmp_path / "login"), "--now"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "config is no YAML"),
        ("[" * 100_000, "exceeded max depth of 100"),
        ({"clusters": {}}, "Expected `array | null`, got `object` - at `$.clusters`"),
        ({"contexts": [{"name": "a"}]}, "no context is current: choose one of a"),
        ({"current-context": "gone"}, "context 'gone' is not there: the file defines no context"),
        (config(cluster={"server": "h:6443"}), "server 'h:6443' is no URL: it must begin with https://"),
        (config(cluster={"proxy-url": "socks5://p"}), "proxy-url 'socks5://p' is not supported"),
        (config(cluster={"certificate-authority": "gone"}), "cluster 'c-x': certificate-authority: .*gone: No such"),
        (config(cluster={"certificate-authority-data": "!"}), "certificate-authority-data is no base64"),
        (config({"auth-provider": {"name": "gcp"}}), "user 'u-x': auth-provider is no longer supported"),
        (config({"client-certificate-data": "eA=="}), "client-key is missing"),
        (config({"exec": {"command": "x", "apiVersion": "v0"}}), "exec.apiVersion 'v0' is not supported: it must be"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(write: Any, content: Any, message: str) -> None:
    path = write(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load(path)
    assert str(path.parent) in str(caught.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="kubeconfig: .*gone: No such file"):
        load(tmp_path / "gone")
    with pytest.raises(ConfigError, match="KUBECONFIG names .*gone, which does not exist"):
        load(environ={"KUBECONFIG": str(tmp_path / "gone")})
    with pytest.raises(ConfigError, match="no API server is known: set KUBECONFIG"):
        load(environ={"HOME": str(tmp_path)})
