"""Kubernetes objects from YAML or JSON files, with errors that name the file, the line and the remedy.

Each document of a file stands for itself: one that cannot be read is reported, and the others are still used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from subak.model import manifest
from subak.model.reason import Refusal

T = TypeVar("T")

_SEPARATOR = re.compile(r"^---(?=\s|$).*$", re.MULTILINE)


class FileError(ValueError):
    """A file or document that cannot be used; the text says where and what would be right."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe YAML that refuses a key given twice (plain YAML would silently keep the last one)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            value = self.construct_object(key, deep=True)
            if isinstance(value, str) and value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {value!r} is given twice", key.start_mark)
            if isinstance(value, str):
                seen.add(value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file, and where it stands."""

    place: str
    content: dict[str, Any]

    @property
    def kind(self) -> str:
        """`kind`."""
        return str(self.content.get("kind", ""))


def documents(path: str) -> Iterator[Document | FileError]:
    """The objects in a file (`-` for standard input), lists taken apart; what cannot be read comes as an error."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        yield FileError(f"{path}: cannot be read: {reason}")
        return
    for line, part in _parts(text):
        try:
            content = yaml.load(part, Loader=_Loader)
        except yaml.YAMLError as error:
            yield FileError(_explained(path, line, error))
            continue
        if content is not None:
            yield from _objects(f"{path}:{line + 1}", content)


def documents_of_config(path: str) -> Any:
    """The content of a configuration file: the file itself, or the ConfigMap that holds it."""
    for document in documents(path):
        if isinstance(document, Document) and document.kind == "ConfigMap":
            return yaml.load(document.content.get("data", {}).get("device-config.yaml", ""), Loader=_Loader)
    try:
        return yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader)
    except (OSError, yaml.YAMLError) as error:
        raise FileError(f"{path}: {error}") from None


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """The documents of a stream, with the number of lines before each."""
    start = 0
    for match in _SEPARATOR.finditer(text):
        yield text.count("\n", 0, start), text[start : match.start()]
        start = match.end()
    yield text.count("\n", 0, start), text[start:]


def _explained(path: str, before: int, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    where = path if mark is None else f"{path}:{before + mark.line + 1}:{mark.column + 1}"
    hint = ""
    if "mapping values are not allowed" in problem:
        hint = (
            "; a key inside another belongs on its own line, indented below it, as in\n  annotations:\n    key: value"
        )
    return f"{where}: not valid YAML: {problem}{hint}"


def _objects(place: str, content: Any) -> Iterator[Document | FileError]:
    if not isinstance(content, dict):
        yield FileError(f"{place}: not a Kubernetes object: expected kind, metadata and so on, got {content!r:.60}")
    elif str(content.get("kind", "")).endswith("List") and isinstance(content.get("items"), list):
        for item in content["items"]:
            kind = str(content["kind"]).removesuffix("List")
            yield from _objects(place, {"kind": kind, **item} if isinstance(item, dict) else item)
    elif not content.get("kind"):
        yield FileError(f"{place}: not a Kubernetes object: it has no kind")
    else:
        yield Document(place, content)


def decode(document: Document, type: type[T]) -> T:
    """The object as `type`.  Raises Refusal that names the field and its value."""
    for group in ("annotations", "labels"):
        entries = (document.content.get("metadata") or {}).get(group)
        for key, value in entries.items() if isinstance(entries, dict) else ():
            if not isinstance(value, str):
                path = f"metadata.{group}[{key}]"
                raise Refusal(path, value, f"{path} must be a text: put {value!r} in quotes")
    try:
        return msgspec.convert(document.content, type)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        path = path.rstrip("`")
        raise Refusal(path, _lookup(document.content, path), f"{path}: {problem.lower()}") from None


def _lookup(content: Any, path: str) -> Any:
    for step in re.findall(r"[^.\[\]]+", path):
        try:
            content = content[int(step)] if isinstance(content, list) else content[step]
        except (KeyError, IndexError, TypeError, ValueError):
            return ""
    return content


def named(document: Document) -> tuple[str, str]:
    """Namespace and name of an object that may be malformed."""
    metadata = document.content.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return str(metadata.get("namespace") or "default"), str(metadata.get("name") or metadata.get("generateName") or "")


KINDS: dict[str, type[manifest.Lean]] = {
    "Node": manifest.Node,
    "Device": manifest.Device,
    "Pod": manifest.Pod,
    "ResourceQuota": manifest.ResourceQuota,
}
"""What a cluster file may hold; other kinds are skipped."""
