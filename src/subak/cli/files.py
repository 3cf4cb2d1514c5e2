"""Kubernetes objects from YAML or JSON files, with errors that name the file, the line and the remedy.

Documents are independent: one that cannot be read is reported, and the others are still used.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from subak.dialects.config import FILE
from subak.model import manifest, volume
from subak.model.reason import Refusal
from tinykube.yaml import read

T = TypeVar("T")

_BOUNDARY = re.compile(r"^(---(?=\s|$)|\.\.\.\s*$)", re.MULTILINE)


class FileError(ValueError):
    """A file or document that cannot be used; the text says where and what would be right."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file, and its place."""

    place: str
    content: dict[str, Any]

    @property
    def kind(self) -> str:
        """`kind`."""
        return str(self.content.get("kind", ""))

    @property
    def metadata(self) -> dict[str, Any]:
        """`metadata`; empty if the object is malformed."""
        metadata = self.content.get("metadata")
        return metadata if isinstance(metadata, dict) else {}

    @property
    def name(self) -> str:
        """`metadata.name`, or nothing."""
        return str(self.metadata.get("name") or "")

    @property
    def namespace(self) -> str:
        """`metadata.namespace`, or nothing."""
        return str(self.metadata.get("namespace") or "")


def documents(path: str) -> Iterator[Document | FileError]:
    """The objects in a file (`-` for standard input), or in the files of a directory; lists are taken apart.

    A document that cannot be read comes as an error.
    """
    if path == "-" or not os.path.isdir(path):
        yield from _in_file(path)
        return
    try:
        inside = sorted(each for each in Path(path).iterdir() if each.suffix in (".yaml", ".yml", ".json"))
    except OSError as error:
        yield FileError(f"{path}: cannot be read: {error.strerror}")
        return
    if not inside:
        yield FileError(f"{path}: the directory holds no .yaml, .yml or .json file")
    for each in inside:
        yield from _in_file(str(each))


def _in_file(path: str) -> Iterator[Document | FileError]:
    try:
        text = _text(path)
    except FileError as error:
        yield error
        return
    empty = True
    for line, part in _parts(text):
        try:
            content = _loaded(path, line, part)
        except FileError as error:
            content = error
            yield error
        else:
            if content is not None:
                yield from _objects(f"{path}:{line + 1}", content)
        empty = empty and content is None
    if empty:
        yield FileError(f"{path}: it is empty: expected Kubernetes objects")


def config(path: str) -> Any:
    """The content of a configuration file: the file itself, or the ConfigMap that holds it.  Raises FileError."""
    contents = [_loaded(path, line, part) for line, part in _parts(_text(path))]
    maps = [each for each in contents if isinstance(each, dict) and each.get("kind") == "ConfigMap"]
    for each in maps:
        data = each.get("data")
        text = data.get(FILE) if isinstance(data, dict) else None
        if isinstance(text, str):
            return _loaded(f"{path}: {FILE}", 0, text)
    if maps:
        raise FileError(f"{path}: the ConfigMap holds no data[{FILE}]")
    return next((each for each in contents if each is not None), None)


def _text(path: str) -> str:
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise FileError(f"{path}: cannot be read: it is not UTF-8 text") from None
    except (OSError, ValueError) as error:  # a path with a null byte
        raise FileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _loaded(path: str, line: int, part: str) -> Any:
    try:
        found = read(part)
    except yaml.YAMLError as error:
        raise FileError(_explained(path, line, part, error)) from None
    for twice in found.repeated:  # YAML would keep the last
        where = f"{path}:{line + twice.line}:{twice.column}"
        raise FileError(f"{where}: not valid YAML: key {twice.key!r} is given twice")
    return found.content


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """The documents of a stream, with the number of lines before each."""
    start = line = 0
    for match in _BOUNDARY.finditer(text):
        part, ends = text[start : match.start()], match[0] != "---"
        if not ends and _is_preface(part):
            continue
        yield line, part
        end = match.end() if ends else match.start()
        line += text.count("\n", start, end)
        start = end
    yield line, text[start:]


def _is_preface(part: str) -> bool:
    """Directives and comments belong to the document that follows."""
    return all(not line.strip() or line.lstrip().startswith(("#", "%")) for line in part.splitlines())


def _explained(path: str, before: int, part: str, error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        ahead = part[: part.find(chr(error.character))].split("\n")
        where = f"{path}:{before + len(ahead)}:{len(ahead[-1]) + 1}"
        return f"{where}: not valid YAML: character #x{error.character:04x} is not allowed; remove it"
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
    elif str(content.get("kind", "")).endswith("List") and isinstance(content.get("items") or [], list):
        kind = str(content["kind"]).removesuffix("List")
        for position, item in enumerate(content.get("items") or ()):
            where = f"{place}: items[{position}]"
            yield from _objects(where, {"kind": kind, **item} if isinstance(item, dict) else item)
    elif not content.get("kind"):
        yield FileError(f"{place}: not a Kubernetes object: it has no kind")
    else:
        yield Document(place, content)


def decode(document: Document, type: type[T]) -> T:
    """The object as `type`.  Raises Refusal that names the field and its value."""
    for group in ("annotations", "labels"):
        entries = document.metadata.get(group)
        for key, value in entries.items() if isinstance(entries, dict) else ():
            if not isinstance(value, str):
                path = f"metadata.{group}[{key}]"
                remedy = "give one, or remove it" if value is None else f"put {_as_written(value)} in quotes"
                raise Refusal(path, value, f"{path} must be a text: {remedy}")
    try:
        return msgspec.convert(document.content, type)
    except msgspec.ValidationError as error:
        raise _refusal(document.content, str(error)) from None


def _as_written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_PROBLEM = re.compile(r"(?P<problem>.*) - at (?P<key>`key` in )?`\$\.?(?P<path>.*)`", re.DOTALL)
_TYPES = {bool: "bool", int: "int", float: "float", str: "str", list: "array", dict: "object", type(None): "null"}


def _refusal(content: Any, text: str) -> Refusal:
    """The error of msgspec, with the key that it writes as `[...]`."""
    match = _PROBLEM.fullmatch(text)
    if match is None:
        return Refusal("", "", text)
    path, problem = match["path"], match["problem"]
    problem = problem[:1].lower() + problem[1:]
    if match["key"]:
        return Refusal(path, _lookup(content, path), f"{path}: a key must be a text: {problem}")
    if path.endswith("[...]"):
        path = path.removesuffix("[...]")
        entries = _lookup(content, path)
        got = problem.rpartition("got `")[2].rstrip("`")
        for key, value in entries.items() if isinstance(entries, dict) else ():
            if _TYPES.get(type(value)) == got:
                return Refusal(f"{path}[{key}]", value, f"{path}[{key}]: {problem}")
    return Refusal(path, _lookup(content, path), f"{path}: {problem}")


def _lookup(content: Any, path: str) -> Any:
    for step in re.findall(r"[^.\[\]]+", path):
        try:
            content = content[int(step)] if isinstance(content, list) else content[step]
        except (KeyError, IndexError, TypeError, ValueError):
            return ""
    return content


def named(document: Document) -> tuple[str, str]:
    """Namespace and name of an object that may be malformed."""
    return document.namespace or "default", document.name or str(document.metadata.get("generateName") or "")


KINDS: dict[str, type[manifest.Lean]] = {
    "Node": manifest.Node,
    "Device": manifest.Device,
    "Pod": manifest.Pod,
    "ResourceQuota": manifest.ResourceQuota,
    **volume.KINDS,
    "Namespace": manifest.Namespace,
}
"""What a cluster file may hold; other kinds are skipped."""
