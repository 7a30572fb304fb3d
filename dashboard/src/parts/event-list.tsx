/** Events about one object, the newest first. */

import { useNow } from "../app-context";
import type { KubeEvent } from "../api/objects";
import { lastTime } from "../model/timeline";
import { clock } from "../model/time";
import { Empty } from "./basics";

const SHOWN = 100;

export function EventList({ events }: { events: readonly KubeEvent[] }) {
  const now = useNow();
  if (events.length === 0) return <Empty title="No events">Events are kept for an hour.</Empty>;
  const newest = events.map((event) => ({ event, time: lastTime(event) })).sort((one, other) => other.time - one.time);
  return (
    <ul class="events">
      {newest.slice(0, SHOWN).map(({ event, time }) => (
        <li key={event.metadata.uid ?? event.metadata.name} class={event.type === "Warning" ? "warning" : ""}>
          <time dateTime={new Date(time).toISOString()}>{clock(time, now)}</time>
          <strong>{event.reason}</strong>
          <span>
            {event.message ?? event.note}
            {(event.count ?? 1) > 1 && ` (${event.count} times)`}
          </span>
        </li>
      ))}
    </ul>
  );
}
