"""Scrapes of ``/metrics``, read by Prometheus' own library."""

from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """The samples of a scrape."""

    def __init__(self, text: str) -> None:
        self.families = {each.name: each for each in text_string_to_metric_families(text)}
        self.samples = [sample for each in self.families.values() for sample in each.samples]

    @property
    def names(self) -> set[str]:
        return {sample.name for sample in self.samples}

    def series(self, name: str) -> list[dict[str, str]]:
        """The labels of each series of a name."""
        return [sample.labels for sample in self.samples if sample.name == name]

    def value(self, name: str, /, **labels: str) -> float:
        """The value of the one series that has these labels, and perhaps others."""
        found = [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(found) == 1, f"{name} {labels}: {len(found)} series"
        return found[0]
