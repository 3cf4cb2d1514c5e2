"""Options that several commands share."""

from __future__ import annotations

import sys

import click

from subak.cli.files import FileError, config
from subak.cli.say import complain
from subak.dialects.config import Config, unknown
from subak.dialects.interpreter import Interpreter

files_option = click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="Pods, as YAML or JSON; several documents and several -f are fine, '-' is standard input.",
)
cluster_option = click.option(
    "--cluster",
    multiple=True,
    required=True,
    metavar="FILE",
    help="The cluster: Nodes, Koordinator Devices, ResourceQuotas, and Pods that already run (they count).",
)
config_option = click.option(
    "--device-config",
    metavar="FILE",
    help="HAMi's device-config.yaml, if resource names or defaults were changed.",
)
live_config_option = click.option(
    "--device-config",
    metavar="FILE",
    callback=lambda context, parameter, path: path and interpreter(path),
    help="HAMi's device-config.yaml, instead of what the cluster itself tells.",
)
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", "json", "yaml"]),
    default="text",
    show_default=True,
    help="How to print; json is a stable interface.",
)


def check_stdin(*paths: tuple[str, ...]) -> None:
    """Refuse a second `-`, since standard input can be read only once."""
    if sum(path == "-" for group in paths for path in group) > 1:
        raise click.UsageError("'-' (standard input) can be given only once, for -f or for --cluster")


def interpreter(device_config: str | None) -> Interpreter:
    """All dialects with the given configuration.  Ends the program if it cannot be read."""
    if device_config is None:
        return Interpreter()
    try:
        content = config(device_config)
        complain((), unknown(content))
        return Interpreter(Config.of(content))
    except (FileError, ValueError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
