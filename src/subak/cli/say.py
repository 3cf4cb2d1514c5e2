"""What every command prints: data for scripts, and one line for an error.  Imports little, so that it is quick."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import click
import yaml

from subak.cli.plain import plain


def emit(data: dict[str, Any], form: str) -> None:
    """Print data as JSON or YAML."""
    if form == "yaml":
        click.echo(yaml.safe_dump(data, sort_keys=False), nl=False)
    else:
        click.echo(json.dumps(data, indent=2))


def say(sentence: str) -> None:
    """Print a line on standard error.  If that fails, as on a closed terminal, we go on."""
    with suppress(OSError):
        click.echo(plain(sentence), err=True)


def complain(errors: Iterable[str], warnings: Iterable[str] = (), notes: Iterable[str] = ()) -> None:
    """Print errors, warnings and notes on standard error."""
    for word, sentences in (("error", errors), ("warning", warnings), ("note", notes)):
        for sentence in sentences:
            say(f"{word}: {sentence}")
