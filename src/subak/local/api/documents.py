"""Bodies of requests and answers: JSON, YAML for those who write by hand, protobuf from clients written in Go."""

from __future__ import annotations

from typing import Any

import msgspec

from subak.local.api import errors, negotiation, protobuf
from subak.local.api.negotiation import JSON, YAML
from subak.local.api.protobuf import PROTOBUF


def content(body: bytes, content_type: str, custom: bool = False) -> bytes | Any:
    """The body of a request as the rules read it: JSON as bytes, so that they see what is there twice."""
    match negotiation.body(content_type, (JSON, YAML) if custom else (JSON, YAML, PROTOBUF)):
        case "application/yaml":
            return parse(body)
        case "application/vnd.kubernetes.protobuf":
            return protobuf.parse(body)
    return body


def decoded(body: bytes, content_type: str) -> Any:
    """The body of a request that the rules do not read."""
    found = content(body, content_type)
    return parse(found) if isinstance(found, bytes) else found


def parse(body: bytes) -> Any:
    """What a YAML body says; JSON is YAML too, and far quicker to read as what it is."""
    if body.lstrip()[:1] == b"{":
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError:
            pass
    import yaml  # only for what is asked rarely: it is slow to import

    try:
        return yaml.load(body, _loader())
    except (yaml.YAMLError, ValueError) as error:
        raise errors.bad_request(f"error decoding YAML: {' '.join(str(error).split())}") from None


def print_yaml(data: bytes) -> bytes:
    """JSON as YAML."""
    import yaml

    text: str = yaml.dump(msgspec.json.decode(data), Dumper=yaml.CSafeDumper, sort_keys=True, allow_unicode=True)
    return text.encode()


def print_as(data: bytes, media: str, pretty: bool) -> bytes:
    """JSON in the form that a client wants."""
    if media == YAML:
        return print_yaml(data)
    return msgspec.json.format(data, indent=2) + b"\n" if pretty else data


def _loader() -> Any:
    """A loader that leaves moments alone: in JSON they are text."""
    import yaml

    class Loader(yaml.CSafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {
        letter: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
        for letter, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader
