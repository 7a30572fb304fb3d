"""Options of a command, from kube-apiserver and from our own server."""

import pytest
from starlette.datastructures import QueryParams

from corral.node.kubelet.exec_options import ExecOptions


@pytest.mark.parametrize(
    ("query", "streams", "tty"),
    [
        ("command=cat&stdin=true&stdout=true", {"stdin", "stdout"}, False),
        ("command=cat&input=1&output=1&tty=1", {"stdin", "stdout"}, True),
        ("command=cat&output=1&error=1", {"stdout", "stderr"}, False),
        ("command=cat&stdin=false&stderr=true&tty=true", {"stderr"}, True),
        ("command=cat", set(), False),
    ],
)
def test_streams_are_named_as_by_kubelets_and_by_clients(query, streams, tty):
    options = ExecOptions.of(QueryParams(query))
    assert (options.command, options.streams(), options.tty) == (["cat"], streams, tty)
