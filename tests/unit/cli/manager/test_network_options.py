"""Directories of CNI plugins on the command line."""

from pathlib import Path

import click
import pytest

from corral.cli.manager.network_options import Directories


def test_directories_are_absolute_and_in_order():
    found = Directories().convert("/opt/cni/bin, plugins", None, None)
    assert found == (Path("/opt/cni/bin"), Path.cwd() / "plugins")


@pytest.mark.parametrize("text", ["/opt/cni/bin, ", "/opt/cni/bin,,", " ,/opt/cni/bin"])
def test_an_empty_entry_is_not_the_working_directory(text):
    assert Directories().convert(text, None, None) == (Path("/opt/cni/bin"),)


@pytest.mark.parametrize("text", ["", " ", ", ,"])
def test_at_least_one_directory_is_named(text):
    with pytest.raises(click.UsageError, match="name at least one directory"):
        Directories().convert(text, None, None)
