"""`subak place`: decide from files where pods go."""

from __future__ import annotations

import sys
import time

import click

from subak.cli.cluster import Cluster
from subak.cli.options import check_stdin, cluster_option, config_option, files_option, interpreter, output_option
from subak.cli.queue import place_all
from subak.cli.report import as_data, show
from subak.cli.say import complain, emit


@click.command()
@files_option
@cluster_option
@config_option
@output_option
def place(files: tuple[str, ...], cluster: tuple[str, ...], device_config: str | None, output: str) -> None:
    """Decide where pods go, without a cluster at hand.

    Pods are placed in the order in which they are given and share one ledger with the pods that already run in the
    cluster file.  Nothing is written anywhere.

    \b
    Examples:
      subak place -f pod.yaml --cluster nodes.yaml
      kubectl get nodes,devices,pods -A -o yaml | subak place -f pod.yaml --cluster -
      subak place -f a.yaml -f b.yaml --cluster nodes.yaml -o json | jq .placed[].node

    \b
    Exit codes:
      0  all pods are placed
      1  some pods wait; the reasons are printed
      2  bad input; what could be read is placed all the same
    """
    check_stdin(files, cluster)
    world = Cluster.from_files(interpreter(device_config), cluster)
    outcome = place_all(world, files, time.time_ns())
    errors = world.errors + outcome.errors
    complain(errors, world.warnings, outcome.notes)
    if output in ("json", "yaml"):
        emit(as_data(outcome), output)
    else:
        show(outcome, world.snapshot, wide=output == "wide")
    sys.exit(2 if errors else outcome.exit_code)
