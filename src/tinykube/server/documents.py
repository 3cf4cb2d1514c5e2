"""Bodies of requests and answers: JSON, YAML for those who write by hand, protobuf from clients written in Go."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from tinykube import depth
from tinykube.server import errors, negotiation, protobuf
from tinykube.server.negotiation import JSON, PROTOBUF, YAML
from tinykube.status import ApiError

Json = dict[str, Any]

MOST_VALUES = 100_000
"""Of a body in YAML.  Reading it blocks the server, for a second at most.  JSON has no such bound."""


class BadYaml(ApiError):
    """A body that is not YAML."""

    def __init__(self, why: str) -> None:
        super().__init__(400, "BadRequest", f"yaml: {why}")


def content(body: bytes, content_type: str) -> tuple[bytes | Any, list[str]]:
    """The body of a request as the rules read it, and which keys YAML has twice; in JSON they see that themselves."""
    media = negotiation.body(content_type, (JSON, YAML, PROTOBUF))
    if media == YAML:
        return parse_yaml(body)
    return protobuf.parse(body) if media == PROTOBUF else body, []


def decoded(body: bytes, content_type: str) -> Json:
    """The body of a request that the rules do not read."""
    found, _ = content(body, content_type)
    if isinstance(found, bytes):
        try:
            depth.check(found)
            found = msgspec.json.decode(found)
        except (msgspec.DecodeError, ValueError) as error:
            raise errors.bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(found, dict):
        raise errors.bad_request("couldn't get version/kind; json parse error: the body is no object")
    return found


def parse_yaml(body: bytes) -> tuple[Any, list[str]]:
    """What the first document of a YAML body says, and which keys it has twice.  Raises BadYaml."""
    import yaml  # only for what is asked rarely: it is slow to import

    from tinykube.yaml import read

    try:
        found = read(body, only_first=True, most_values=MOST_VALUES)
    except yaml.MarkedYAMLError as error:
        raise BadYaml(_problem(error)) from None
    except yaml.YAMLError as error:
        raise BadYaml(" ".join(str(error).split())) from None
    twice = [f'line {each.line}: key "{each.key}" already set in map' for each in found.repeated]
    return _as_json(found.content), twice


def _problem(error: Any) -> str:
    """The problem in Go's words, which are libyaml's, with the line that Go would name."""
    import yaml

    from tinykube.yaml import Unfit

    if isinstance(error, Unfit):  # Go's reader tells no line of what is proper YAML
        return str(error.problem)
    lines = [mark.line for mark in (error.context_mark, error.problem_mark) if mark is not None and mark.line]
    if not lines:
        return str(error.problem)
    return f"line {lines[0] + isinstance(error, yaml.scanner.ScannerError)}: {error.problem}"


def _as_json(value: Any) -> Any:
    """The same with keys that JSON can have."""
    if isinstance(value, dict):
        return {_key(key): _as_json(each) for key, each in value.items()}
    return [_as_json(each) for each in value] if isinstance(value, list) else value


def _key(key: Any) -> str:
    return key if isinstance(key, str) else msgspec.json.encode(key).decode()


def print_as(data: bytes, media: str, pretty: bool) -> bytes:
    """JSON in the form that a client wants."""
    if media == YAML:
        import yaml

        text: str = yaml.dump(msgspec.json.decode(data), Dumper=_dumper(), sort_keys=True, allow_unicode=True)
        return text.encode()
    return msgspec.json.format(data, indent=2) + b"\n" if pretty else data


@cache
def _dumper() -> Any:
    """A dumper that writes long texts as people would."""
    import yaml

    class Dumper(yaml.CSafeDumper):
        pass

    def text(dumper: Any, value: str) -> Any:
        tag = "tag:yaml.org,2002:str"
        ambiguous = dumper.resolve(yaml.ScalarNode, value, (True, False)) != tag
        return dumper.represent_scalar(tag, value, style="|" if "\n" in value else '"' if ambiguous else None)

    Dumper.add_representer(str, text)
    return Dumper
