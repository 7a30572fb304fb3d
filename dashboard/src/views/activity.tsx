/** Who did what, when and why: events and changes, the newest first; it follows the server. */

import { useMemo, useRef, useState } from "preact/hooks";
import { useApp, useNow } from "../app-context";
import { Command, Empty, Title } from "../parts/basics";
import { VirtualList } from "../parts/virtual-list";
import { activityOf, matchesFilter, type Entry, type Filter } from "../model/activity";
import { clock } from "../model/time";

const ROW_HEIGHT = 54;
const CHOICES: [Filter["only"], string][] = [["all", "All"], ["changes", "Changes by people"], ["warnings", "Warnings"]];

export function ActivityView() {
  const { world } = useApp();
  const [filter, setFilter] = useState<Filter>({ text: "", only: "all" });
  const [held, setHeld] = useState<readonly Entry[] | undefined>(undefined);
  const before = useRef(new Map<string, Entry>());
  const entries = useMemo(() => activityOf(world, before.current), [world.events, world.sets, world.pools, world.vms, world.vmis, world.warmPools, world.claims, world.dataVolumes]);
  const shown = useMemo(() => (held ?? entries).filter((each) => matchesFilter(each, filter)), [held, entries, filter]);
  return (
    <>
      <Title name="Activity">
        <div class="filters">
          <div class="choices" role="group" aria-label="Which entries">
            {CHOICES.map(([only, label]) => (
              <button key={only} type="button" class="chip" aria-pressed={filter.only === only} onClick={() => setFilter({ ...filter, only })}>
                {label}
              </button>
            ))}
          </div>
          <button type="button" aria-pressed={!held} onClick={() => setHeld(held ? undefined : entries)}>
            {held ? "Follow" : "Following"}
          </button>
          <input type="search" class="search" placeholder="Filter: object, reason, who" aria-label="Filter activity" aria-keyshortcuts="/" value={filter.text} onInput={(event) => setFilter({ ...filter, text: event.currentTarget.value })} />
        </div>
      </Title>
      {filter.only === "changes" && <p class="note">Objects keep the last change of each program and user; the audit log of the server has all of them.</p>}
      {shown.length === 0 ? (
        <Empty title="Nothing to see">
          <p>Events appear here while machines start, stop and move. In a terminal:</p>
          <Command line="kubectl get events -A --watch" />
        </Empty>
      ) : (
        <VirtualList class="activity" label="Activity" columns={["When", "What", "Object", "Message", "Who"]} items={shown} rowHeight={ROW_HEIGHT} keyOf={(each) => each.key} render={(each) => <Line entry={each} />} />
      )}
    </>
  );
}

function Line({ entry }: { entry: Entry }) {
  const now = useNow();
  const about = entry.name;
  return (
    <>
      <span role="cell" class="mono">
        <time dateTime={new Date(entry.time).toISOString()} title={new Date(entry.time).toLocaleString()}>{clock(entry.time, now)}</time>
      </span>
      <span role="cell" class={entry.isWarning ? "warning" : entry.isChange ? "change" : ""} title={entry.isWarning ? "Warning" : undefined}>
        {entry.isWarning && <span class="hidden">Warning: </span>}
        {entry.reason}
      </span>
      <span role="cell" title={`${entry.kind} ${entry.namespace}/${about}`}>
        {entry.link ? <a href={entry.link}>{about}</a> : about}
      </span>
      <span role="cell" class="message" title={entry.message}>
        {entry.message}
        {entry.count > 1 && ` (${entry.count} times)`}
      </span>
      <span role="cell" class="wide note" title={entry.who}>
        {entry.who}
      </span>
    </>
  );
}
