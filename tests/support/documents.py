"""The pods of the documents whose languages we speak, as `examples/` has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).parents[2] / "examples"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def pods_of_the_documents() -> list[dict[str, Any]]:
    """All that are valid, but for those of gangs, which need objects beside them."""
    files = [each for each in sorted(EXAMPLES.rglob("*.yaml")) if not {"clusters", "invalid", "gang"} & set(each.parts)]
    found = [each for file in files for each in yaml.load_all(file.read_text(), _LOADER)]
    return [each for each in found if each["kind"] == "Pod"]
