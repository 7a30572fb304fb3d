/** Times as people read them. */

/** Return how long ago something was, in kubectl's words: 5s, 3m12s, 2h, 4d. */
export function age(from: string | undefined, now: number): string {
  const began = from ? Date.parse(from) : NaN;
  return Number.isFinite(began) ? span(now - began) : "";
}

export function span(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return seconds % 60 ? `${minutes}m${seconds % 60}s` : `${minutes}m`;
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours}h` : `${Math.floor(hours / 24)}d`;
}

/** Return a length of time with the precision that it deserves: 340 ms, 2.4 s, 3m12s. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  return span(ms);
}

// Made once: a formatter takes longer to make than a screen of times to format.
const TIME_OF_DAY = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** Return the time of day, and the date where it is not today. */
export function clock(time: number, now: number): string {
  const date = new Date(time);
  const clockTime = TIME_OF_DAY.format(date);
  return new Date(now).toDateString() === date.toDateString() ? clockTime : `${DAY.format(date)} ${clockTime}`;
}
