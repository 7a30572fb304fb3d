"""The kubeconfig of an unreachable cluster."""

import pytest


@pytest.fixture
def nobody_home(tmp_path, monkeypatch):
    """$KUBECONFIG names a server that does not answer; answers the file's path."""
    config = tmp_path / "kubeconfig"
    config.write_text(
        "current-context: c\n"
        "contexts:\n"
        "- {name: c, context: {cluster: k, user: u, namespace: home}}\n"
        "- {name: other, context: {cluster: k, user: u, namespace: away}}\n"
        "clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    return config
