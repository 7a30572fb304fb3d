"""Options in a configuration file."""

import click
import pytest

from corral.cli import hints
from corral.cli.manager.controllers import controllers
from corral.cli.manager.join import join
from corral.cli.manager.node import node
from corral.cli.manager.up import up


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_keys_are_the_names_of_flags(write, tmp_path):
    path = write(
        f"data-dir: {tmp_path}/lab\nbind: 127.0.0.1:7443\nboots: 2\nnetwork: false\n"
        "pod-cidr: 10.9.0.0/16\n"
    )
    context = up.make_context("up", ["--config", path])
    assert str(context.params["layout"].root) == f"{tmp_path}/lab"
    assert context.params["bind"] == ("127.0.0.1", 7443)
    assert context.params["boots"] == 2
    assert context.params["network"] is False
    assert [str(each) for each in context.params["pod_cidr"]] == ["10.9.0.0/16"]


def test_flags_take_precedence_over_the_file(write):
    path = write("boots: 2\nname: one\n")
    params = join.make_context("join", ["--config", path, "--boots", "3"]).params
    assert (params["boots"], params["name"]) == (3, "one")


def test_repeatable_options_are_lists(write):
    path = write("label: [rack=b, a=c]\ntaint: ['lab=x:NoSchedule']\n")
    params = node.make_context("node", ["--config", path]).params
    assert params["labels"] == (("rack", "b"), ("a", "c"))
    assert params["taints"] == ({"key": "lab", "effect": "NoSchedule", "value": "x"},)


def test_a_required_option_may_stand_in_the_file(write):
    path = write("kubeconfig: /etc/corral/controllers.conf\nleader-elect: false\n")
    params = controllers.make_context("controllers", ["--config", path]).params
    assert str(params["path"]) == "/etc/corral/controllers.conf"
    assert params["leader_elect"] is False


def test_options_for_a_unit_name_the_file_not_its_content(write):
    path = write("boots: 2\nname: one\n")
    context = join.make_context("join", ["--config", path, "--no-network"])
    assert hints.options(context) == ["--config", path, "--no-network"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bots: 2", "bots is no option of up. Did you mean boots?"),
        ("pod_cidr: 10.0.0.0/8", "pod_cidr is no option of up. Did you mean pod-cidr?"),
        ("detach: true", "detach is no option of up"),
        ("config: other.yaml", "config is no option of up"),
        ("ready-fd: 3", "ready-fd is no option of up"),
        ("1: 2", "1 is no option of up"),
        ("network: 'no'", "network: must be true or false"),
        ("boots: [2]", "boots: must be text or a number"),
        ("boots: two", "'two' is not a valid integer"),
        ("- boots", "yaml: a document must be an object"),
        ("a: [", "config.yaml"),
    ],
)
def test_an_invalid_file_is_rejected_with_the_key(write, text, message):
    with pytest.raises(click.BadParameter) as caught:
        up.make_context("up", ["--config", write(text)])
    assert message in caught.value.format_message()


def test_a_repeatable_option_must_be_a_list(write):
    with pytest.raises(click.BadParameter, match="label: must be a list"):
        join.make_context("join", ["--config", write("label: rack=b")])


def test_an_empty_file_changes_nothing(write):
    assert up.make_context("up", ["--config", write("# none\n")]).params["boots"] is None
