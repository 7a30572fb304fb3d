"""One measured thing: its samples, and what they come to."""

import statistics
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Figure:
    """Samples of one quantity; ``goal`` says what it should be, in words."""

    name: str
    samples: list[float]
    unit: str = ""
    goal: str = ""
    notes: dict[str, object] = field(default_factory=dict)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def document(self) -> dict[str, object]:
        return {
            "name": self.name,
            "unit": self.unit,
            "goal": self.goal,
            "median": round(self.median, 4),
            "least": round(min(self.samples), 4),
            "most": round(max(self.samples), 4),
            "samples": [round(sample, 4) for sample in self.samples],
            **self.notes,
        }


def percentile(samples: list[float], percent: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def table(figures: list[Figure]) -> str:
    rows = [("what", "median", "least", "most", "n", "goal")]
    for figure in figures:
        values = (figure.median, min(figure.samples), max(figure.samples))
        shown = [
            f"{value:.3g} {figure.unit}" if value < 100 else f"{value:.0f} {figure.unit}"
            for value in values
        ]
        rows.append((figure.name, *shown, str(len(figure.samples)), figure.goal))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
