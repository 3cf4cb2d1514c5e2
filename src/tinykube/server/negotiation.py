"""In which form an answer is wanted, and in which form a body came.

Answers are JSON or YAML, never protobuf: clients that would rather have that name JSON as their second choice.  A
client may also ask for a Table, or for metadata alone, instead of the object.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinykube.server.memo import remembered
from tinykube.status import ApiError

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
SPOKEN = (JSON, YAML)

_CONVERSIONS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")


@dataclass(frozen=True, slots=True)
class Form:
    """`convert` names another kind to show objects as, in a `version` of meta.k8s.io."""

    media: str = JSON
    convert: str = ""
    version: str = "v1"
    pretty: bool = False


PLAIN = Form()


@dataclass(frozen=True, slots=True)
class Clause:
    """One of the forms that a client accepts."""

    media: str
    parameters: dict[str, str]
    quality: float


@remembered(256)
def form(accept: str) -> Form:
    """The first of the accepted forms that can be had."""
    if not accept:
        return PLAIN
    for clause in clauses(accept):
        for media in SPOKEN:
            if clause.media in (media, "application/*", "*/*"):
                found = _form(media, clause.parameters)
                if found is not None:
                    return found
    raise not_acceptable((*SPOKEN, PROTOBUF))


def _form(media: str, parameters: dict[str, str]) -> Form | None:
    if parameters.get("stream", "watch") != "watch" or (parameters.get("stream") and media == YAML):
        return None
    found = Form(media, pretty=parameters.get("pretty") == "1")
    if not {"as", "g", "v"} & parameters.keys():
        return found
    version = parameters.get("v", "")
    if parameters.get("g") != "meta.k8s.io" or version not in ("v1", "v1beta1"):
        return None
    kind = parameters.get("as", "")
    return replace(found, convert=kind, version=version) if kind in _CONVERSIONS else None


def clauses(accept: str) -> list[Clause]:
    """What a client accepts, best first."""
    found = []
    for text in accept.split(","):
        media, *parts = (part.strip() for part in text.split(";"))
        parameters = {
            key.strip(): value.strip().strip('"') for key, _, value in (part.partition("=") for part in parts)
        }
        if "/" not in media and media != "*":
            continue
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 1.0
        found.append(Clause("*/*" if media == "*" else media, parameters, quality))
    return sorted(found, key=lambda each: (-each.quality, each.media.startswith("*"), each.media.endswith("*")))


@remembered(256)
def check(accept: str, streams: bool = False) -> None:
    """The server asks this first, before it looks closer: does the client take anything that there is?"""
    if accept and not any(each.partition(";")[0].strip() in (*SPOKEN, PROTOBUF, "*/*") for each in accept.split(",")):
        forms = [*SPOKEN, PROTOBUF, *(f"{each};stream=watch" for each in (JSON, PROTOBUF) if streams)]
        message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(forms)}"
        raise ApiError(406, "NotAcceptable", message, {})


def not_acceptable(spoken: tuple[str, ...]) -> ApiError:
    """Nothing that the client would take can be had."""
    message = f"only the following media types are accepted: {', '.join(spoken)}"
    return ApiError(406, "NotAcceptable", message)


def body(content_type: str, spoken: tuple[str, ...]) -> str:
    """What a body is, by its Content-Type; JSON if there is none."""
    media = content_type.partition(";")[0].strip().lower()
    if not content_type:
        return spoken[0]
    if media in spoken:
        return media
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(spoken)}"
    raise ApiError(415, "UnsupportedMediaType", message)


def is_pretty(query: str, agent: str) -> bool:
    """Whether a person reads the answer, who wants it indented."""
    if query:
        return query in ("1", "t", "T", "true", "TRUE", "True")
    return agent.startswith(("curl", "Wget", "Mozilla/5.0"))
