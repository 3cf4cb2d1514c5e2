"""TOML files of container runtimes, merged as these merge them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from subak.doctor import CannotTell

Table = dict[str, Any]


def load(path: Path) -> Table:
    """What a file says; empty if it is not there.  Raises CannotTell if it is no TOML."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CannotTell(f"{path}: {error}", "correct the file: the container runtime does not start with it") from None


def merged(old: Table, new: Mapping[str, Any]) -> Table:
    """Both, table by table; where both say something, the new one counts."""
    result = dict(old)
    for key, value in new.items():
        known = result.get(key)
        result[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return result


def table(content: Mapping[str, Any], *path: str) -> Table:
    """The table at a path; empty if there is none."""
    for key in path:
        found = content.get(key)
        content = found if isinstance(found, dict) else {}
    return dict(content)
