"""Benchmarks are run by hand, so nothing else says that a name that they import is gone."""

import importlib
import pkgutil

import bench
import pytest

BENCHMARKS = sorted(module.name for module in pkgutil.iter_modules(bench.__path__))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_finds_what_it_imports(name):
    importlib.import_module(f"bench.{name}")
