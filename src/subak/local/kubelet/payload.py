"""The content of volumes that show ConfigMaps, Secrets and fields of the pod: files with their modes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from subak.local.kubelet import downward
from subak.local.kubelet.content import ConfigMap, Contents, Reference, Secret, not_found
from subak.local.kubelet.pod import Downward, Keys, Pod, Source, Volume
from subak.model.manifest import Amount

USUAL_MODE = 0o644


class BadVolume(ValueError):
    """A volume that cannot be set up (yet)."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file of a volume."""

    data: bytes
    mode: int


Payload = dict[str, Content]


def sources(volume: Volume) -> Sequence[Source]:
    """The sources of a volume; none if it starts empty."""
    if volume.projected:
        return volume.projected.sources
    if volume.config_map or volume.secret or volume.downward_api:
        return (Source(config_map=volume.config_map, secret=volume.secret, downward_api=volume.downward_api),)
    return ()


def references(volume: Volume) -> Iterator[Reference]:
    """The ConfigMaps and Secrets that the volume shows."""
    for source in sources(volume):
        if source.config_map:
            yield ConfigMap, source.config_map.name
        if source.secret:
            yield Secret, source.secret.name or source.secret.secret_name


def payload(volume: Volume, pod: Pod, contents: Contents, allocatable: Mapping[str, Amount]) -> Payload:
    """The files of a volume; a later source wins.  Raises BadVolume."""
    files: Payload = {}
    usual = volume.projected.default_mode if volume.projected else None
    for source in sources(volume):
        if source.config_map:
            files |= _keys(ConfigMap, source.config_map, contents, usual)
        elif source.secret:
            files |= _keys(Secret, source.secret, contents, usual)
        elif source.downward_api:
            files |= _fields(source.downward_api, pod, allocatable, usual)
        else:
            raise BadVolume(f"volume {volume.name}: only configMap, secret and downwardAPI can be projected here")
    return files


def _keys(kind: type[ConfigMap] | type[Secret], keys: Keys, contents: Contents, usual: int | None) -> Payload:
    reference = (kind, keys.name or keys.secret_name)
    found = contents.get(reference)
    if found is None and not keys.optional:
        raise BadVolume(not_found(reference))
    files = found.files if found else {}
    mode = _first(keys.default_mode, usual)
    if not keys.items:
        return {name: Content(data, mode) for name, data in files.items()}
    made: Payload = {}
    for item in keys.items:
        if item.key in files:
            made[item.path] = Content(files[item.key], _first(item.mode, mode))
        elif not keys.optional:
            what = "config key" if kind is ConfigMap else "secret key"
            raise BadVolume(
                f"{'configmap' if kind is ConfigMap else ''} references non-existent {what}: {item.key}".strip()
            )
    return made


def _fields(fields: Downward, pod: Pod, allocatable: Mapping[str, Amount], usual: int | None) -> Payload:
    made: Payload = {}
    mode = _first(fields.default_mode, usual)
    for item in fields.items:
        try:
            if item.field_ref:
                text = downward.field(pod, item.field_ref)
            elif item.resource_field_ref:
                text = downward.amount(pod, None, item.resource_field_ref, allocatable)
            else:
                continue
        except downward.NoSuchField as error:
            raise BadVolume(str(error)) from None
        made[item.path] = Content(text.encode(), _first(item.mode, mode))
    return made


def _first(*modes: int | None) -> int:
    return next((each for each in modes if each is not None), USUAL_MODE)
