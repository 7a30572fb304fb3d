"""Packages of which modules are used do not run before they are used themselves."""

import subprocess
import sys

import pytest

from corral.deferred_packages import PACKAGES

USES = {
    "dnslib": ("corral.node.dns.codec", "DNSRecord", "dnslib.dns"),
    "lightkube": ("lightkube.models.core_v1", "Client", "lightkube.core.client"),
    "prometheus_client": (
        "prometheus_client.metrics_core",
        "CollectorRegistry",
        "prometheus_client.exposition",
    ),
    "httpcore2": ("httpcore2._exceptions", "AsyncConnectionPool", "httpcore2._async"),
    "structlog": ("structlog.typing", "get_logger", "structlog.dev"),
    "uvicorn": ("uvicorn.config", "Server", "uvicorn.main"),
}
"""By package: the module that corral imports, a name of the package, and what it imports for it."""


def run(code: str) -> int:
    return subprocess.run([sys.executable, "-c", code], check=False).returncode


def test_a_name_of_a_module_is_had_without_its_package():
    code = "import sys, corral, uvicorn.config; from uvicorn import Config"
    assert run(f"{code}; assert Config is uvicorn.config.Config") == 0
    assert run(f"{code}; assert 'uvicorn.main' not in sys.modules") == 0
    assert (
        run(f"{code}; import uvicorn.lifespan.off; assert 'uvicorn.main' not in sys.modules") == 0
    )


def test_every_deferred_package_is_tested():
    assert set(USES) == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_is_imported_without_its_package(package):
    module, name, unwanted = USES[package]
    code = f"import sys, corral, {module}; assert '{unwanted}' not in sys.modules"
    assert run(code) == 0
    assert run(f"{code}; from {package} import {name}; assert '{unwanted}' in sys.modules") == 0
    assert run(f"{code}; import {package}; {package}.{name}; {package}.__doc__") == 0


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_a_package_lacks_is_an_attribute_error(package):
    assert run(f"import corral, {package}; assert not hasattr({package}, 'missing_name')") == 0


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_that_is_imported_already_stays_as_it_is(package):
    code = f"import {package}; before = vars({package}).copy(); import corral; "
    code += f"assert vars({package}).get('__getattr__') is before.get('__getattr__')"
    assert run(code) == 0


def test_structlog_does_not_import_rich(tmp_path, monkeypatch):
    (tmp_path / "rich.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import sys, corral, structlog; structlog.get_logger(); assert 'rich' not in sys.modules"
    assert run(code) == 0
    assert run(f"{code}; import rich") == 0
    assert run("import rich, corral, structlog; structlog.get_logger(); rich.__file__") == 0


@pytest.mark.parametrize("package", ["httpx2", "websockets.server"])
def test_no_version_of_a_package_is_searched_for(package):
    assert (
        run(f"import sys, corral, {package}; assert 'importlib.metadata' not in sys.modules") == 0
    )


def test_a_client_imports_neither_http2_nor_the_search_for_versions(tmp_path, monkeypatch):
    (tmp_path / "h2").mkdir()
    (tmp_path / "h2" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import sys, corral, httpx2; httpx2.AsyncClient()"
    for unwanted in ("h2", "importlib.metadata"):
        assert run(f"{code}; assert '{unwanted}' not in sys.modules; import {unwanted}") == 0
    assert run(f"{code}; from importlib.metadata import version; version('httpcore2')") == 0
