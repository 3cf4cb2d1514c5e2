"""`subak completion`: commands and options completed by the shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes subak's commands and options.

    \b
    Examples:
      source <(subak completion bash)
      subak completion fish > ~/.config/fish/completions/subak.fish
    """
    from subak.cli import cli

    made = get_completion_class(shell)
    assert made is not None, "click knows these shells"
    click.echo(made(cli, {}, "subak", "_SUBAK_COMPLETE").source())
