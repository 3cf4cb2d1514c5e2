"""`subak backup`: the state of a cluster of `subak up` in one file, while it runs."""

from __future__ import annotations

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
    "--state", metavar="DIR", type=click.Path(path_type=Path), required=True, help="The --state of `subak up`."
)
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
def backup(file: Path, state: Path, force: bool) -> None:
    """Copy the state of a cluster into a file, whether the cluster runs or not.

    FILE has all objects as they are at one moment, and the certificates and the token, so that kubeconfigs stay valid:
    only you can read it.  Volumes and logs of pods are not in it.  `subak restore` makes a state directory of it.

    \b
    Example:
      subak backup --state ~/subak subak.backup

    \b
    Exit codes:
      0  the file is there, as a whole
      2  bad input: no state, a damaged one, or a file that is there or cannot be written
    """
    try:
        found = copies.write(state, file, [IDENTITY], replace=force)
    except copies.FileTaken:
        complain([f"{file}: it is there already: name another file, or replace it with --force"])
        sys.exit(BAD_INPUT)
    except Damaged as error:
        complain([f"{error}: a backup would be damaged too; keep those that you have"])
        sys.exit(BAD_INPUT)
    except StateError as error:
        complain([str(error)])
        sys.exit(BAD_INPUT)
    except OSError as error:
        complain([f"{error.filename or file}: {error.strerror}"])
        sys.exit(BAD_INPUT)
    click.echo(f"{file}: {state} as of revision {found.revision}, {found.objects:,} objects")
