"""What volumes a pod may have, and how containers may mount them.

Volumes that only machines of a cloud can have are held to the rule that a volume has one type, and no further.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinykube.server.rules import problem, scalars
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import environment, metadata, names, paths, resources

Json = dict[str, Any]

# The order in which types are looked at: the first is right, what follows is one too many.
_TYPES = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
    "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc",
    "flexVolume", "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk",
    "storageos", "projected", "scaleIO", "csi", "ephemeral", "image",
)  # fmt: skip
_MISNAMED = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
_HOST_PATHS = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_PULLS = ("Always", "IfNotPresent", "Never")


def all_of(problems: Problems, path: str, volumes: list[Json], pod: str) -> dict[str, Json]:
    """Of a pod's volumes; gives those that are right, by name."""
    made = {f"{pod}-{each.get('name', '')}" for each in volumes if "ephemeral" in each} if pod else set()
    right: dict[str, Json] = {}
    for index, volume in enumerate(volumes):
        here, name = f"{path}[{index}]", volume.get("name", "")
        wrong: Problems = []
        _source(wrong, here, volume, pod)
        if not name:
            wrong.append(problem.required(f"{here}.name"))
        else:
            problem.each(wrong, f"{here}.name", name, names.dns_label(name))
        if name in right:
            wrong.append(problem.duplicate(f"{here}.name", name))
        if wrong:
            problems += wrong
        else:
            right[name] = volume
        claim = volume.get("persistentVolumeClaim", {}).get("claimName", "")
        if claim in made:
            words = "must not reference a PVC that gets created for an ephemeral volume"
            problems.append(problem.invalid(f"{here}.persistentVolumeClaim.claimName", claim, words))
    return right


def mounts(problems: Problems, path: str, container: Json, volumes: dict[str, Json]) -> None:
    """Of a container's volume mounts."""
    devices = {each.get("name", ""): each.get("devicePath", "") for each in container.get("volumeDevices", ())}
    device_paths = set(devices.values())
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", ())):
        here = f"{path}[{index}]"
        name, place = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            problems.append(problem.required(f"{here}.name"))
        if name not in volumes:
            problems.append(problem.not_found(f"{here}.name", name))
        if not place:
            problems.append(problem.required(f"{here}.mountPath"))
        if place in seen:
            problems.append(problem.invalid(f"{here}.mountPath", place, "must be unique"))
        seen.add(place)
        if name in devices:
            problems.append(problem.invalid(f"{here}.name", name, "must not already exist in volumeDevices"))
        if place in device_paths:
            words = "must not already exist as a path in volumeDevices"
            problems.append(problem.invalid(f"{here}.mountPath", place, words))
        if len(mount) > 2:
            _mount_options(problems, path, here, mount, container)


def devices(problems: Problems, path: str, container: Json, volumes: dict[str, Json]) -> None:
    """Of a container's block devices."""
    mounted = {each.get("name", ""): each.get("mountPath", "") for each in container.get("volumeMounts", ())}
    mount_paths = set(mounted.values())
    seen_names: set[str] = set()
    seen_paths: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices", ())):
        here, name, place = f"{path}[{index}]", device.get("name", ""), device.get("devicePath", "")
        volume = volumes.get(name)
        if not name:
            problems.append(problem.required(f"{here}.name"))
        if name in seen_names:
            problems.append(problem.invalid(f"{here}.name", name, "must be unique"))
        if volume is not None and not {"persistentVolumeClaim", "ephemeral"} & volume.keys():
            words = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            problems.append(problem.invalid(f"{here}.name", name, words))
        if volume is None:
            problems.append(problem.not_found(f"{here}.name", name))
        if not place:
            problems.append(problem.required(f"{here}.devicePath"))
        if place in seen_paths:
            problems.append(problem.invalid(f"{here}.devicePath", place, "must be unique"))
        if ".." in place.split("/"):
            problems.append(problem.invalid(f"{here}.devicePath", place, "can not contain backsteps ('..')"))
        else:
            seen_paths.add(place)
        if name in mounted:
            problems.append(problem.invalid(f"{here}.name", name, "must not already exist in volumeMounts"))
        if place in mount_paths:
            words = "must not already exist as a path in volumeMounts"
            problems.append(problem.invalid(f"{here}.devicePath", place, words))
        if name:
            seen_names.add(name)


def _mount_options(problems: Problems, path: str, here: str, mount: Json, container: Json) -> None:
    below, expression = mount.get("subPath"), mount.get("subPathExpr")
    if below:
        paths.downward(problems, f"{path}.subPath", below)
    if expression:
        if below:
            words = "subPathExpr and subPath are mutually exclusive"
            problems.append(problem.invalid(f"{here}.subPathExpr", expression, words))
        paths.downward(problems, f"{path}.subPathExpr", expression)
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        if propagation not in _PROPAGATIONS:
            problems.append(problem.unsupported(f"{path}.mountPropagation", propagation, _PROPAGATIONS))
        if propagation == "Bidirectional" and not container.get("securityContext", {}).get("privileged"):
            words = "Bidirectional mount propagation is available only to privileged containers"
            problems.append(problem.forbidden(f"{path}.mountPropagation", words))
    recursive = mount.get("recursiveReadOnly")
    if recursive in ("Enabled", "IfPossible"):
        here = f"{path}.recursiveReadOnly"
        if not mount.get("readOnly"):
            problems.append(problem.forbidden(here, "may only be specified when readOnly is true"))
        if propagation not in (None, "None"):
            words = "may only be specified when mountPropagation is None or not specified"
            problems.append(problem.forbidden(here, words))
    elif recursive not in (None, "Disabled"):
        known = ("Disabled", "Enabled", "IfPossible")
        problems.append(problem.unsupported(f"{path}.recursiveReadOnly", recursive, known))


def _source(problems: Problems, path: str, volume: Json, pod: str) -> None:
    given = [each for each in _TYPES if each in volume]
    if not given:
        problems.append(problem.required(path, "must specify a volume type"))
        return
    rule = _RULES.get(given[0])
    if rule is not None:
        rule(problems, f"{path}.{given[0]}", volume[given[0]])
    if given[0] == "ephemeral" and pod and volume.get("name"):
        claim = f"{pod}-{volume['name']}"
        for detail in names.subdomain_name(claim):
            words = f"PVC name {problem.quote(claim)}: {detail}"
            problems.append(problem.invalid(f"{path}.name", volume["name"], words))
    for each in given[1:]:
        words = "may not specify more than 1 volume type"
        problems.append(problem.forbidden(f"{path}.{_MISNAMED.get(each, each)}", words))


def _empty_dir(problems: Problems, path: str, source: Json) -> None:
    limit = source.get("sizeLimit")
    if limit is not None and scalars.nanos(limit) < 0:
        words = "SizeLimit field must be a valid resource quantity"
        problems.append(problem.forbidden(f"{path}.sizeLimit", words))


def _host_path(problems: Problems, path: str, source: Json) -> None:
    if not source.get("path"):
        problems.append(problem.required(f"{path}.path"))
        return
    paths.no_way_up(problems, f"{path}.path", source["path"])
    if source.get("type", "") not in _HOST_PATHS:
        problems.append(problem.unsupported(f"{path}.type", source["type"], _HOST_PATHS))


def _keyed(name: str) -> Callable[[Problems, str, Json], None]:
    """The rule for volumes made of the keys of a named object."""

    def rule(problems: Problems, path: str, source: Json) -> None:
        if not source.get(name):
            problems.append(problem.required(f"{path}.{name}"))
        paths.mode(problems, f"{path}.defaultMode", source.get("defaultMode"))
        for index, item in enumerate(source.get("items", ())):
            _item(problems, f"{path}.items[{index}]", item)

    return rule


def _item(problems: Problems, path: str, item: Json) -> None:
    place = item.get("path", "")
    if not item.get("key"):
        problems.append(problem.required(f"{path}.key"))
    if not place:
        problems.append(problem.required(f"{path}.path"))
    paths.not_reserved(problems, f"{path}.path", place)
    paths.mode(problems, f"{path}.mode", item.get("mode"))


def _claim(problems: Problems, path: str, source: Json) -> None:
    if not source.get("claimName"):
        problems.append(problem.required(f"{path}.claimName"))


def _downward(problems: Problems, path: str, source: Json) -> None:
    paths.mode(problems, f"{path}.defaultMode", source.get("defaultMode"))
    for item in source.get("items", ()):
        _downward_file(problems, path, item)


def _downward_file(problems: Problems, path: str, item: Json) -> None:
    place = item.get("path", "")
    if not place:
        problems.append(problem.required(f"{path}.path"))
    paths.not_reserved(problems, f"{path}.path", place)
    if "fieldRef" in item:
        environment.field(problems, f"{path}.fieldRef", item["fieldRef"], environment.VOLUME_FIELDS)
        if "resourceFieldRef" in item:
            words = "fieldRef and resourceFieldRef can not be specified simultaneously"
            problems.append(problem.invalid(path, "resource", words))
    elif "resourceFieldRef" in item:
        environment.resource(problems, f"{path}.resourceFieldRef", item["resourceFieldRef"], volume=True)
    else:
        problems.append(problem.required(path, "one of fieldRef and resourceFieldRef is required"))
    paths.mode(problems, f"{path}.mode", item.get("mode"))


def _projected(problems: Problems, path: str, source: Json) -> None:
    paths.mode(problems, f"{path}.defaultMode", source.get("defaultMode"))
    taken: set[str] = set()

    def take(place: str, shown: str) -> None:
        if place and place in taken:
            problems.append(problem.invalid(path, shown, "conflicting duplicate paths"))
        taken.add(place)

    for index, each in enumerate(source.get("sources") or ()):
        here = f"{path}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if kind in each:
                name = each[kind].get("name", "")
                if not name:
                    problems.append(problem.required(f"{here}.{kind}.name"))
                for place, item in enumerate(each[kind].get("items", ())):
                    _item(problems, f"{here}.{kind}.items[{place}]", item)
                    take(item.get("path", ""), name)
        for item in each.get("downwardAPI", {}).get("items", ()):
            _downward_file(problems, f"{here}.downwardAPI", item)
            take(item.get("path", ""), item.get("path", ""))
        if "serviceAccountToken" in each:
            _token(problems, path, f"{here}.serviceAccountToken", each["serviceAccountToken"])
        if len(each) > 1:
            problems.append(problem.forbidden(here, "may not specify more than 1 volume type per source"))


def _token(problems: Problems, path: str, here: str, token: Json) -> None:
    seconds = token.get("expirationSeconds", 0)
    if seconds < 600:
        words = "may not specify a duration less than 10 minutes"
        problems.append(problem.invalid(f"{here}.expirationSeconds", seconds, words))
    if seconds > 1 << 32:
        words = "may not specify a duration larger than 2^32 seconds"
        problems.append(problem.invalid(f"{here}.expirationSeconds", seconds, words))
    if not token.get("path"):
        problems.append(problem.required(f"{path}.path"))
    else:
        paths.not_reserved(problems, f"{path}.path", token["path"])


def _ephemeral(problems: Problems, path: str, source: Json) -> None:
    template = source.get("volumeClaimTemplate")
    path = f"{path}.volumeClaimTemplate"
    if template is None:
        problems.append(problem.required(path))
        return
    meta, spec = template.get("metadata", {}), template.get("spec", {})
    metadata.labels(problems, f"{path}.metadata.labels", meta.get("labels"))
    modes = spec.get("accessModes", ())
    if not modes:
        problems.append(problem.required(f"{path}.spec.accessModes", "at least 1 access mode is required"))
    metadata.label_selector(problems, f"{path}.spec.selector", spec.get("selector"))
    known = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
    problems += [problem.unsupported(f"{path}.spec.accessModes", each, known) for each in modes if each not in known]
    storage = spec.get("resources", {}).get("requests", {}).get("storage")
    if storage is None:
        problems.append(problem.required(f"{path}.spec.resources[storage]"))
    elif scalars.nanos(storage) <= 0:
        words = "must be greater than zero"
        problems.append(problem.invalid(f"{path}.spec.resources[storage]", storage, words))
    else:
        resources.amount(problems, f"{path}.spec.resources[storage]", "storage", storage)
    if spec.get("volumeMode") not in (None, "Block", "Filesystem"):
        problems.append(problem.unsupported(f"{path}.spec.volumeMode", spec["volumeMode"], ("Block", "Filesystem")))


def _image(problems: Problems, path: str, source: Json) -> None:
    if not source.get("reference"):
        problems.append(problem.required(f"{path}.reference"))
    if source.get("pullPolicy") not in _PULLS:
        problems.append(problem.unsupported(f"{path}.pullPolicy", source.get("pullPolicy", ""), _PULLS))


def _nfs(problems: Problems, path: str, source: Json) -> None:
    for key in ("server", "path"):
        if not source.get(key):
            problems.append(problem.required(f"{path}.{key}"))
    if not source.get("path", "").startswith("/"):
        problems.append(problem.invalid(f"{path}.path", source.get("path", ""), "must be an absolute path"))


_RULES: dict[str, Callable[[Problems, str, Json], None]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "secret": _keyed("secretName"),
    "configMap": _keyed("name"),
    "persistentVolumeClaim": _claim,
    "downwardAPI": _downward,
    "projected": _projected,
    "ephemeral": _ephemeral,
    "image": _image,
    "nfs": _nfs,
}
