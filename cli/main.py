"""The root of the command: what `warren` alone prints, and where the families of commands are hung."""

import click

from ..version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="warren", message="%(prog)s %(version)s")
def main() -> None:
    """An AMQP 0-9-1 message broker."""
