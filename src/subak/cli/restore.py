"""`subak restore`: a state directory for `subak up` from a backup."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from subak.cli.say import complain
from subak.local.state import IDENTITY
from tinykube.server import backup as copies
from tinykube.server.state import Damaged, StateError

BAD_INPUT = 2


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--state", metavar="DIR", type=click.Path(path_type=Path), required=True, help="A directory that is not there yet."
)
def restore(file: Path, state: Path) -> None:
    """Make a state directory from a file of `subak backup`.

    The cluster that starts with it has all objects of the backup, and the same certificates and token.  Its pods start
    anew, on the cards that they had, with empty volumes.

    \b
    Example:
      subak restore subak.backup --state ~/restored
      subak up --state ~/restored

    \b
    Exit codes:
      0  the directory can be used
      2  bad input: no backup, a damaged one, or a directory that holds something or cannot be written
    """
    try:
        found = copies.restore(file, state, [IDENTITY])
    except Damaged as error:
        complain([f"{error}: nothing can be restored from it; take an earlier backup"])
        sys.exit(BAD_INPUT)
    except StateError as error:
        complain([str(error)])
        sys.exit(BAD_INPUT)
    except OSError as error:
        complain([f"{error.filename or state}: {error.strerror}"])
        sys.exit(BAD_INPUT)
    click.echo(f"{state}: {file} as of revision {found.revision}, {found.objects:,} objects")
    click.echo(f"  subak up --state {shlex.quote(str(state))}")
