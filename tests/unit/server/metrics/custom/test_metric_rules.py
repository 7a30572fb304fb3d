"""Files of rules: what is refused, and in which words."""

import re
from pathlib import Path

import pytest

from corral.api.kinds.core.pod import POD
from corral.server.metrics.custom.metric_rules import RulesError, load

GOOD = """
custom:
- metric: busy
  query: sum by (pod) (busy{$matchers})
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("custom: [", "did not find expected node content"),
        ("- custom", "yaml: a document must be an object"),
        ("customs: []", "unknown field `customs`"),
        ("custom: [{metric: x}]", "required field `query` - at `$.custom[0]`"),
        ("custom: [{metric: x, query: 1}]", "Expected `str`, got `int` - at `$.custom[0].query`"),
        ("custom: [{metric: x, query: q}]", "custom[0].query: $matchers must stand where"),
        ("external: [{metric: x, query: q}]", "unless namespaced is false"),
        (
            "external: [{metric: x, query: ' ', namespaced: false}]",
            "external[0].query: must not be",
        ),
        ("custom: [{metric: a/b, query: q}]", 'custom[0].metric: "a/b" cannot be part of a path'),
        (GOOD + "  label: a-b", 'custom[0].label: "a-b" cannot be a label in Prometheus'),
        (GOOD + "  namespaceLabel: a-b", "custom[0].namespaceLabel:"),
        (GOOD + "  window: soon", "custom[0].window:"),
        (GOOD + "  window: 100h", "custom[0].window: must be from 1s to 24h"),
        (GOOD + "  resource: services\n  instances: true", "custom[0].instances: is for pods"),
        (GOOD + GOOD.partition("\n")[2].partition("\n")[2], '"busy" has a rule already'),
    ],
)
def test_an_invalid_file_is_an_error_with_its_name(tmp_path, text, message):
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    with pytest.raises(RulesError) as raised:
        load(file)
    assert str(raised.value).startswith(f"{file}: ")
    assert message in str(raised.value)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(RulesError, match="No such file or directory"):
        load(tmp_path / "missing")


def test_without_defaults_only_metrics_with_rules_exist(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text("external: [{metric: a, query: b, namespaced: false}]\ndefaults: false")
    rules = load(file)
    assert rules.external_rule("a").with_matchers([]) == "b"
    assert rules.external_rule("b") is None


ROOT = Path(__file__).parents[5]


def test_the_rules_of_the_examples_and_the_guide_are_valid(tmp_path):
    example = load(ROOT / "examples/prometheus/metric-rules.yaml")
    assert example.custom_rule(POD, "processors").is_vmi_label
    (block,) = re.findall(
        r"```yaml\n(# metric-rules.yaml\n.*?)```",
        (ROOT / "docs/guide/operations.md").read_text(),
        re.DOTALL,
    )
    (tmp_path / "rules.yaml").write_text(block)
    guide = load(tmp_path / "rules.yaml")
    assert guide.custom_rule(POD, "http_requests_per_second") == example.custom_rule(
        POD, "http_requests_per_second"
    )
    assert guide.external_rule("jobs_waiting") == example.external_rule("jobs_waiting")
