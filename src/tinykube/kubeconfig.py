"""Where the API server is: kubeconfig files as kubectl reads them, or the service account of the pod we run in.

Several files (`KUBECONFIG=a:b`) count as one: of two that define the same name, the first wins.  Paths in a file are
relative to its folder.  Nothing is guessed: what is missing or not understood is a `ConfigError`.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tinykube.endpoint import ConfigError, Credentials, Endpoint, Fixed, Identity, TokenFile
from tinykube.plugin import VERSIONS, Plugin
from tinykube.yaml import read

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Kebab(msgspec.Struct, rename="kebab", frozen=True, kw_only=True):
    """A part of a kubeconfig."""


class ClusterEntry(Kebab, frozen=True, kw_only=True):
    """Where a server is."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class ExecVariable(Kebab, frozen=True, kw_only=True):
    """A variable for a credential program."""

    name: str
    value: str = ""


class ExecEntry(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A credential program."""

    command: str
    args: list[str] | None = None
    env: list[ExecVariable] | None = None
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class UserEntry(Kebab, frozen=True, kw_only=True):
    """A user and the credentials."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: list[str] | None = msgspec.field(default=None, name="as-groups")
    exec: ExecEntry | None = None
    auth_provider: Any = None


class Context(Kebab, frozen=True, kw_only=True):
    """Who speaks to which server, and of which namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(Kebab, frozen=True, kw_only=True):
    """A cluster and what it is called."""

    name: str
    cluster: ClusterEntry = ClusterEntry()


class NamedUser(Kebab, frozen=True, kw_only=True):
    """A user and what it is called."""

    name: str
    user: UserEntry = UserEntry()


class NamedContext(Kebab, frozen=True, kw_only=True):
    """A context and what it is called."""

    name: str
    context: Context = Context()


class KubeconfigFile(Kebab, frozen=True, kw_only=True):
    """One kubeconfig file."""

    current_context: str = ""
    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None
    contexts: list[NamedContext] | None = None


def load(path: str | Path | None = None, context: str = "", environ: Mapping[str, str] = os.environ) -> Endpoint:
    """The API server that `path`, else KUBECONFIG, else ~/.kube/config names; else that of the pod we run in.

    `context` is used instead of the current one.  Raises ConfigError.
    """
    if path is not None:
        files = [_read(Path(path))]
    elif environ.get("KUBECONFIG"):
        paths = [Path(each) for each in environ["KUBECONFIG"].split(os.pathsep) if each]
        files = [_read(each) for each in paths if each.exists()]
        if not files:
            named = ", ".join(map(str, paths))
            raise ConfigError(f"KUBECONFIG names {named}, which does not exist: correct or unset KUBECONFIG")
    else:
        home = Path(environ.get("HOME", "/")) / ".kube" / "config"
        files = [_read(home)] if home.exists() else []
    if files:
        return Merged(files).endpoint(context)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    raise ConfigError("no API server is known: set KUBECONFIG, or give the path of a kubeconfig file")


def in_cluster(environ: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT) -> Endpoint:
    """The API server of the cluster in which we run as a pod.  Raises ConfigError."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    space = folder / "namespace"
    return Endpoint(
        f"https://{address}",
        TokenFile(folder / "token"),
        namespace=space.read_text().strip() if space.exists() else "default",
        authority=_contents(folder / "ca.crt", "the service account's certificate authority"),
        authority_file=folder / "ca.crt",
    )


class Merged:
    """Several kubeconfig files as one."""

    def __init__(self, files: list[tuple[Path, KubeconfigFile]]) -> None:
        self.paths = ", ".join(str(path) for path, _ in files)
        self.current = next((file.current_context for _, file in files if file.current_context), "")
        self.contexts: dict[str, tuple[Path, Context]] = {}
        self.clusters: dict[str, tuple[Path, ClusterEntry]] = {}
        self.users: dict[str, tuple[Path, UserEntry]] = {}
        for path, file in files:
            for context in file.contexts or ():
                self.contexts.setdefault(context.name, (path, context.context))
            for cluster in file.clusters or ():
                self.clusters.setdefault(cluster.name, (path, cluster.cluster))
            for user in file.users or ():
                self.users.setdefault(user.name, (path, user.user))

    def endpoint(self, name: str = "") -> Endpoint:
        """The API server of a context, the current one if none is named."""
        name = name or self.current
        if not name:
            raise ConfigError(f"{self.paths}: no context is current: {self._choice('context', self.contexts)}")
        _, context = self._find("context", self.contexts, name)
        path, cluster = self._find("cluster", self.clusters, context.cluster)
        where = f"{path}: cluster {context.cluster!r}"
        if not cluster.server.startswith(("https://", "http://")):
            raise ConfigError(f"{where}: server {cluster.server!r} is no URL: it must begin with https:// or http://")
        if cluster.proxy_url:
            raise ConfigError(f"{where}: proxy-url {cluster.proxy_url!r} is not supported: reach the server directly")
        user_path, user = self._find("user", self.users, context.user) if context.user else (path, UserEntry())
        authority = _pem(
            path, f"{where}: certificate-authority", cluster.certificate_authority_data, cluster.certificate_authority
        )
        return Endpoint(
            cluster.server.rstrip("/"),
            _credentials(user_path, context.user, user, cluster, authority),
            namespace=context.namespace or "default",
            authority=authority,
            authority_file=_authority_file(path, cluster),
            verify=not cluster.insecure_skip_tls_verify,
            server_name=cluster.tls_server_name,
            impersonate=_impersonate(user),
        )

    def _find(self, what: str, known: dict[str, tuple[Path, Any]], name: str) -> tuple[Path, Any]:
        if name not in known:
            raise ConfigError(f"{self.paths}: {what} {name!r} is not there: {self._choice(what, known)}")
        return known[name]

    def _choice(self, what: str, known: Mapping[str, Any]) -> str:
        return f"choose one of {', '.join(sorted(known))}" if known else f"the file defines no {what}"


def _read(path: Path) -> tuple[Path, KubeconfigFile]:
    try:
        content = read(_contents(path, "kubeconfig")).content
        return path, msgspec.convert(content or {}, KubeconfigFile)
    except yaml.YAMLError as error:
        raise ConfigError(f"kubeconfig {path} is no YAML: {error}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"kubeconfig {path}: {error}") from None


def _credentials(path: Path, name: str, user: UserEntry, cluster: ClusterEntry, authority: bytes) -> Credentials:
    where = f"{path}: user {name!r}"
    if user.auth_provider is not None:
        raise ConfigError(f"{where}: auth-provider is no longer supported, by kubectl neither: use exec")
    if user.exec is not None:
        return _plugin(path, where, user.exec, cluster, authority)
    if user.token_file:
        return TokenFile(path.parent / user.token_file)
    if user.token:
        return Fixed(Identity.bearer(user.token))
    if user.username:
        return Fixed(Identity.basic(user.username, user.password))
    certificate = _pem(path, f"{where}: client-certificate", user.client_certificate_data, user.client_certificate)
    key = _pem(path, f"{where}: client-key", user.client_key_data, user.client_key)
    if bool(certificate) != bool(key):
        missing = "client-key" if certificate else "client-certificate"
        raise ConfigError(f"{where}: {missing} is missing: a client certificate and its key belong together")
    return Fixed(Identity(certificate=certificate, key=key))


def _plugin(path: Path, where: str, program: ExecEntry, cluster: ClusterEntry, authority: bytes) -> Plugin:
    if program.api_version not in VERSIONS:
        versions = " or ".join(VERSIONS)
        raise ConfigError(f"{where}: exec.apiVersion {program.api_version!r} is not supported: it must be {versions}")
    command = program.command
    if "/" in command:
        command = str(path.parent / command)
    info: dict[str, Any] = {"server": cluster.server}
    if authority:
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    if cluster.insecure_skip_tls_verify:
        info["insecure-skip-tls-verify"] = True
    if cluster.tls_server_name:
        info["tls-server-name"] = cluster.tls_server_name
    return Plugin(
        [command, *(program.args or ())],
        program.api_version,
        env={each.name: each.value for each in program.env or ()},
        hint=program.install_hint,
        interactive=program.interactive_mode != "Never",
        cluster=info if program.provide_cluster_info else None,
    )


def _impersonate(user: UserEntry) -> tuple[tuple[str, str], ...]:
    headers = []
    if user.impersonate:
        headers.append(("impersonate-user", user.impersonate))
    if user.impersonate_uid:
        headers.append(("impersonate-uid", user.impersonate_uid))
    return (*headers, *(("impersonate-group", group) for group in user.impersonate_groups or ()))


def _authority_file(path: Path, cluster: ClusterEntry) -> Path | None:
    if cluster.certificate_authority_data or not cluster.certificate_authority:
        return None
    return path.parent / cluster.certificate_authority


def _pem(path: Path, where: str, data: str, file: str) -> bytes:
    """What is given inline, or in a file beside the kubeconfig."""
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise ConfigError(f"{where}-data is no base64: {error}") from None
    return _contents(path.parent / file, where) if file else b""


def _contents(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{what}: {path}: {error.strerror}") from None
