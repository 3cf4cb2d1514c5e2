"""The environment of a container.

Later lines win:

    PATH, HOSTNAME, HOME             what a container runtime sets
    services                         the cluster's services, if the pod wants them
    envFrom, env                     what the pod says
    injection                        what its share of the cards brings

Injections come last, as with NRI: they win over the pod.  Only the pod's LD_PRELOAD stays, behind the library that
enforces its share.  `$(NAME)` in the pod's own values refers to variables that were defined before, and to services.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from subak.local.kubelet import downward
from subak.local.kubelet.content import ConfigMap, Contents, Reference, Secret, not_found
from subak.local.kubelet.expansion import Room, expand
from subak.local.kubelet.pod import Container, EnvFrom, EnvVar, KeyRef, Pod
from subak.local.runtime.machine import search_path
from subak.model.manifest import Amount


class BadConfig(ValueError):
    """A container whose configuration refers to something that does not exist (yet)."""


def references(container: Container) -> Iterator[Reference]:
    """The ConfigMaps and Secrets that the environment refers to."""
    for each in container.env_from:
        if each.config_map_ref:
            yield ConfigMap, each.config_map_ref.name
        if each.secret_ref:
            yield Secret, each.secret_ref.name
    for variable in container.env:
        source = variable.value_from
        if source and source.config_map_key_ref:
            yield ConfigMap, source.config_map_key_ref.name
        if source and source.secret_key_ref:
            yield Secret, source.secret_key_ref.name


def environment(
    pod: Pod,
    container: Container,
    contents: Contents,
    services: Mapping[str, str],
    allocatable: Mapping[str, Amount],
) -> dict[str, str]:
    """The pod's own variables, and services: the part that `$(NAME)` in commands refers to.

    Raises BadConfig, TooLong.
    """
    own: dict[str, str] = {}
    room = Room()
    for each in container.env_from:
        own |= {name: room.take(value) for name, value in _all_keys(each, contents).items()}
    for variable in container.env:
        if variable.value or variable.value_from is None:
            own[variable.name] = room.take(expand(variable.value, own, services))
            continue
        value = _from_source(pod, container, variable, contents, allocatable)
        if value is not None:
            own[variable.name] = room.take(value)
    return {**services, **own}


def complete(pod: Pod, user: int, said: Mapping[str, str], injected: Mapping[str, str]) -> dict[str, str]:
    """The whole environment: the pod's own variables, and those of its share of the cards."""
    home = "/root" if user == 0 else "/"
    return {"PATH": _path(), "HOSTNAME": pod.host_name, "HOME": home, **said, **injected}


@cache
def _path() -> str:
    """The usual PATH, since there is no image to define one."""
    return search_path()


def _all_keys(source: EnvFrom, contents: Contents) -> dict[str, str]:
    ref = source.config_map_ref or source.secret_ref
    if ref is None:
        return {}
    found = _found((ConfigMap if source.config_map_ref else Secret, ref.name), ref.optional, contents)
    return {source.prefix + key: value for key, value in found.items()}


def _from_source(
    pod: Pod, container: Container, variable: EnvVar, contents: Contents, allocatable: Mapping[str, Amount]
) -> str | None:
    source = variable.value_from
    assert source is not None
    try:
        if source.field_ref:
            return downward.field(pod, source.field_ref)
        if source.resource_field_ref:
            return downward.amount(pod, container, source.resource_field_ref, allocatable)
    except downward.NoSuchField as error:
        raise BadConfig(str(error)) from None
    if source.config_map_key_ref:
        return _key(pod, ConfigMap, source.config_map_key_ref, contents)
    if source.secret_key_ref:
        return _key(pod, Secret, source.secret_key_ref, contents)
    if source.file_key_ref:
        raise BadConfig(f"variable {variable.name}: fileKeyRef is not served here, use configMapKeyRef or secretKeyRef")
    return ""


def _key(pod: Pod, kind: type[ConfigMap] | type[Secret], ref: KeyRef, contents: Contents) -> str | None:
    value = _found((kind, ref.name), ref.optional, contents).get(ref.key)
    if value is None and not ref.optional:
        raise BadConfig(f"couldn't find key {ref.key} in {kind.__name__} {pod.namespace}/{ref.name}")
    return value


def _found(reference: Reference, optional: bool, contents: Contents) -> dict[str, str]:
    found = contents.get(reference)
    if found is None and not optional:
        raise BadConfig(not_found(reference))
    return found.variables if found else {}
