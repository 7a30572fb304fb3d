/** How a machine started: its stages with their times, from timestamps, conditions and events. Pure. */

import { condition, list, text, type KubeEvent, type KubeObject } from "../api/objects";

export interface Stage {
  /** What took the time. */
  label: string;
  /** When it ended, in milliseconds since the epoch. */
  time: number;
  /** Milliseconds since the stage before ended. */
  took: number;
  /** Whether the time has the precision of milliseconds. */
  isPrecise: boolean;
  detail: string;
}

interface Moment {
  time: number;
  isPrecise: boolean;
}

const NAMED_BY_TIME = /\.([0-9a-f]{15,16})$/;
const EARLIEST_MS = Date.UTC(2015, 0);
const SECOND_MS = 1000;
/** A condition that changed later than this has changed since the start: it says nothing about it. */
const LONGEST_START_MS = 15 * 60_000;

/** Return when an event was recorded.
 *
 * Recorders name an event by the nanoseconds at which it was recorded, in hexadecimal: events' own
 * timestamps have seconds only. The name counts only where both agree.
 */
export function eventMoment(event: KubeEvent): Moment {
  const stamp = event.firstTimestamp || event.eventTime || event.metadata.creationTimestamp || "";
  const coarse = Date.parse(stamp);
  const hex = NAMED_BY_TIME.exec(event.metadata.name)?.[1];
  const precise = hex ? Number(BigInt(`0x${hex}`) / 1000n) / 1000 : NaN;
  if (precise > EARLIEST_MS && Math.abs(precise - coarse) < 2 * SECOND_MS) return { time: precise, isPrecise: true };
  return { time: coarse, isPrecise: /\.\d{3}/.test(stamp) };
}

/** When an event happened last. */
export function lastTime(event: KubeEvent): number {
  const stamp = event.series?.lastObservedTime || event.lastTimestamp || event.eventTime || event.metadata.creationTimestamp;
  const coarse = Date.parse(stamp ?? "");
  const first = eventMoment(event);
  return Math.abs(first.time - coarse) < SECOND_MS ? first.time : coarse;
}

const ADMISSION = "Admission";
const WAIT_FOR_NODE = "Wait for a node";
const ACCEPTED = "Node accepts it";
const SET_UP = "QEMU is set up";
const DISK = "Image and disk";
const QEMU = "QEMU starts";
const AGENT = "Guest boots, to its agent";
const READY = "Becoming ready";

/** The events that end a stage of a start, by reason; `of` is the kind that the event is about. */
const STAGES: { reason: string; of: "VirtualMachineInstance" | "Pod"; label: string }[] = [
  { reason: "SuccessfulCreate", of: "VirtualMachineInstance", label: ADMISSION },
  { reason: "Scheduled", of: "Pod", label: WAIT_FOR_NODE },
  { reason: "Pulling", of: "Pod", label: ACCEPTED },
  { reason: "Pulled", of: "Pod", label: DISK },
  { reason: "Created", of: "VirtualMachineInstance", label: SET_UP },
  { reason: "Started", of: "VirtualMachineInstance", label: QEMU },
];

const PHASES: Record<string, string> = { Scheduling: ADMISSION, Scheduled: WAIT_FOR_NODE, Running: QEMU };

/** Return the stages of a VMI's start, in order; `events` are those about it and its pods. */
export function timelineOf(vmi: KubeObject, events: readonly KubeEvent[]): Stage[] {
  const created = Date.parse(vmi.metadata.creationTimestamp ?? "");
  if (!Number.isFinite(created)) return [];
  const stages = new Map<string, Moment & { detail: string }>();
  for (const each of STAGES) {
    const found = events.find((event) => event.reason === each.reason && event.involvedObject?.kind === each.of);
    if (found) stages.set(each.label, { ...eventMoment(found), detail: found.message ?? "" });
  }
  addPhases(stages, vmi);
  addCondition(stages, vmi, "AgentConnected", AGENT);
  addCondition(stages, vmi, "Ready", READY);
  return ordered(created, stages);
}

function addPhases(stages: Map<string, Moment & { detail: string }>, vmi: KubeObject): void {
  for (const each of list(vmi, "status", "phaseTransitionTimestamps")) {
    const label = PHASES[text(each, "phase")];
    const time = Date.parse(text(each, "phaseTransitionTimestamp"));
    if (label && !stages.has(label) && Number.isFinite(time)) stages.set(label, { time, isPrecise: false, detail: "" });
  }
}

function addCondition(stages: Map<string, Moment & { detail: string }>, vmi: KubeObject, type: string, label: string): void {
  const found = condition(vmi, type);
  const time = Date.parse(found?.lastTransitionTime ?? "");
  if (found?.status === "True" && Number.isFinite(time)) stages.set(label, { time, isPrecise: false, detail: "" });
}

const GUEST_LABELS = [AGENT, READY];

/** Put the stages in their order. A coarse time has lost up to a second: it is no earlier than the stage before. */
function ordered(created: number, stages: Map<string, Moment & { detail: string }>): Stage[] {
  const pick = (label: string) => {
    const found = stages.get(label);
    return found ? [{ label, ...found }] : [];
  };
  const host = STAGES.flatMap((each) => pick(each.label));
  const first = host[0];
  const latest = (host.at(-1)?.time ?? created) + LONGEST_START_MS;
  const guest = GUEST_LABELS.flatMap(pick)
    .filter((each) => each.time < latest)
    .sort((one, other) => one.time - other.time);
  // A creation has seconds only: it is at most the first event's time, and within its second.
  const start = first?.isPrecise ? Math.max(created, Math.min(first.time, created + SECOND_MS - 1)) : created;
  let last = start;
  return [...host, ...guest].map((each, index, all) => {
    const time = Math.max(each.time, last);
    // An image that has been pulled may have lost its event: the time went there, not to QEMU.
    const label = all[index - 1]?.label === ACCEPTED && each.label === SET_UP ? DISK : each.label;
    const stage = { ...each, label, time, took: time - last };
    last = time;
    return stage;
  });
}

/** What follows each stage while it has not ended. */
const NEXT: Record<string, string> = {
  [ADMISSION]: WAIT_FOR_NODE,
  [WAIT_FOR_NODE]: DISK,
  [ACCEPTED]: DISK,
  [DISK]: QEMU,
  [SET_UP]: QEMU,
};
const BEFORE_RUNNING = ["", "Pending", "Scheduling", "Scheduled"];

/** Return the stage that a machine is in before its QEMU runs, with what it has taken so far. */
export function currentStage(vmi: KubeObject, stages: readonly Stage[], now: number): Stage | undefined {
  if (!BEFORE_RUNNING.includes(text(vmi, "status", "phase")) || vmi.metadata.deletionTimestamp) return undefined;
  const last = stages.at(-1);
  const began = last?.time ?? Date.parse(vmi.metadata.creationTimestamp ?? "");
  const label = last ? (NEXT[last.label] ?? last.label) : ADMISSION;
  return { label, time: now, took: Math.max(0, now - began), isPrecise: false, detail: "" };
}
