/** Usage over the last minutes, as a line. */

import type { Sample } from "../model/usage";

const WIDTH = 240;
const HEIGHT = 48;
const SHORTEST_SPAN_MS = 5 * 60_000;

/** Return the points of a line through the samples, in the units of the picture. */
export function pointsOf(samples: readonly Sample[], value: (sample: Sample) => number, most: number): [number, number][] {
  const last = samples.at(-1)?.time ?? 0;
  const span = Math.max(SHORTEST_SPAN_MS, last - (samples[0]?.time ?? 0));
  return samples.map((each) => [
    WIDTH * (1 - (last - each.time) / span),
    HEIGHT - 2 - (HEIGHT - 6) * Math.min(1, value(each) / (most || 1)),
  ]);
}

export function Sparkline(props: {
  samples: readonly Sample[];
  value: (sample: Sample) => number;
  /** The value at the top; by default the greatest of the samples. */
  most?: number;
  label: string;
  format: (value: number) => string;
}) {
  const { samples, value, label, format } = props;
  const last = samples.at(-1);
  const greatest = Math.max(...samples.map(value), 0);
  const most = props.most && Number.isFinite(props.most) ? props.most : greatest * 1.25;
  const points = pointsOf(samples, value, most).map((each) => each.map((number) => number.toFixed(1)).join(","));
  const text = last ? format(value(last)) : "no samples yet";
  const first = points[0];
  return (
    <figure class="sparkline">
      <figcaption>
        <span>{label}</span>
        <strong>{text}</strong>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`${label}: ${text}, at most ${format(greatest)}`}>
        {points.length > 1 && first && (
          <polygon points={`${first.split(",")[0]},${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`} />
        )}
        {points.length > 1 && <polyline points={points.join(" ")} />}
        {points.length === 1 && <line x1="0" x2={WIDTH} y1={first?.split(",")[1]} y2={first?.split(",")[1]} />}
      </svg>
    </figure>
  );
}
