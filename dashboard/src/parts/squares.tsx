/** A bar of single machines, each a square coloured by its state. */

import { memo } from "preact/compat";
import { MEANING, STATES, type Counts, type Machine } from "../model/machines";
import { href } from "../model/routes";

const CHUNK = 50;
/** More machines than this are drawn smaller. */
const MANY = 200;

/** The squares of a set: one for each member, and hollow ones for those that are still to come. */
export function Squares({ machines, missing, label }: { machines: readonly Machine[]; missing: number; label: string }) {
  const chunks: (readonly Machine[])[] = [];
  for (let from = 0; from < machines.length; from += CHUNK) chunks.push(machines.slice(from, from + CHUNK));
  const absent = Math.max(0, Math.min(missing, CHUNK));
  return (
    <ul class={`squares${machines.length > MANY ? " many" : ""}`} aria-label={label}>
      {chunks.map((chunk, index) => (
        <Chunk key={index} machines={chunk} />
      ))}
      {absent > 0 && (
        <li class="absent" aria-label={`${missing} still to come`}>
          {Array.from({ length: absent }, (_, index) => (
            <span key={index} class="square missing" />
          ))}
        </li>
      )}
    </ul>
  );
}

/** Fifty squares, which are drawn anew only when one of their machines has changed. */
const Chunk = memo(
  ({ machines }: { machines: readonly Machine[] }) => (
    <>
      {machines.map((each) => (
        <li key={each.key}>
          <a
            class={`square ${each.state}`}
            href={href("machine", each.namespace, each.name)}
            title={`${each.name}: ${MEANING[each.state]}${each.detail ? ` (${each.detail})` : ""}`}
            aria-label={`${each.name}, ${MEANING[each.state]}`}
          />
        </li>
      ))}
    </>
  ),
  (before, now) =>
    before.machines.length === now.machines.length && before.machines.every((each, index) => each === now.machines[index]),
);

/** What the colours mean, with how many machines are in each state. */
export function Legend({ counts, onPick, picked }: { counts: Counts; onPick?: (state: string) => void; picked?: string }) {
  const shown = STATES.filter((each) => counts[each]);
  return (
    <ul class="legend">
      {shown.map((each) => (
        <li key={each}>
          {onPick ? (
            <button type="button" class="chip" aria-pressed={picked === each} onClick={() => onPick(picked === each ? "" : each)}>
              <span class={`square ${each}`} aria-hidden="true" /> {counts[each]} {MEANING[each]}
            </button>
          ) : (
            <span>
              <span class={`square ${each}`} aria-hidden="true" /> {counts[each]} {MEANING[each]}
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}
