"""`subak extender`: the configuration with which a kube-scheduler asks Subak for cards."""

from __future__ import annotations

import click
import yaml

from subak.cli.options import config_option, interpreter
from subak.scheduler.extender.configuration import PROFILES, configuration

_SCHEMES = ("http://", "https://")

URL = "http://127.0.0.1:8118"


def _url(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not value.startswith(_SCHEMES):
        raise click.BadParameter(f"{value!r} is no address for kube-scheduler, such as {URL}")
    return value


@click.command()
@click.option("--url", default=URL, show_default=True, callback=_url, help="Where kube-scheduler reaches Subak.")
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    default=PROFILES,
    show_default=True,
    help="A scheduler that pods name; give one for each.",
)
@config_option
def extender(url: str, profiles: tuple[str, ...], device_config: str | None) -> None:
    """Print the configuration with which a kube-scheduler asks Subak for cards.

    All resource names of the device config are left to Subak.

    \b
    Examples:
      subak extender > scheduler.yaml
      subak extender --url https://subak.subak-system:8118 --profile hami-scheduler
    """
    content = configuration(interpreter(device_config).resources, url, profiles)
    click.echo(yaml.safe_dump(content, sort_keys=False), nl=False)
