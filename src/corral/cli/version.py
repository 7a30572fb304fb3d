"""``corral version``."""

import platform
import subprocess

import click

from corral import __version__


@click.command(epilog="\b\nExample:\n  corral version")
def version() -> None:
    """Print the versions of corral and of what it stands on."""
    click.echo(f"corral  {__version__}")
    click.echo(f"python  {platform.python_version()}")
    click.echo(f"qemu    {_qemu()}")


def _qemu() -> str:
    try:
        said = subprocess.run(
            ["qemu-system-x86_64", "--version"],
            capture_output=True, text=True, timeout=10, check=True,
        ).stdout  # fmt: skip
    except FileNotFoundError:
        return "not installed"
    except (subprocess.SubprocessError, OSError) as error:
        return f"does not run: {error}"
    return said.split("version", 1)[-1].split()[0]
