/** The number of machines of a set, with minus and plus. Fast clicks are one request. */

import { useEffect, useRef, useState } from "preact/hooks";

const WAIT_MS = 600;
const MOST = 100_000;

export function Stepper({ value, label, refusal, onChange }: { value: number; label: string; refusal: string; onChange: (value: number) => void }) {
  const [draft, setDraft] = useState<number | undefined>(undefined);
  const timer = useRef(0);
  const shown = draft ?? value;
  // A click may come before the last one is drawn.
  const latest = useRef(shown);
  latest.current = shown;
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => setDraft((each) => (each === value ? undefined : each)), [value]);
  const send = (next: number) => {
    clearTimeout(timer.current);
    setDraft(undefined);
    if (next !== value) onChange(next);
  };
  const step = (by: number) => {
    if (refusal) return;
    const next = Math.max(0, Math.min(MOST, latest.current + by));
    latest.current = next;
    setDraft(next);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => send(next), WAIT_MS);
  };
  const disabled = refusal ? "true" : undefined;
  return (
    <div class="stepper" role="group" aria-label={label} title={refusal || undefined}>
      <button type="button" aria-label={`${label}: one fewer`} aria-disabled={disabled} onClick={() => step(-1)}>
        −
      </button>
      <input
        type="text"
        inputMode="numeric"
        pattern="[0-9]*"
        aria-label={`${label}: number of machines`}
        readOnly={Boolean(refusal)}
        value={String(shown)}
        onChange={(event) => {
          const next = Number.parseInt(event.currentTarget.value, 10);
          if (next >= 0 && next <= MOST) send(next);
          else event.currentTarget.value = String(shown);
        }}
      />
      <button type="button" aria-label={`${label}: one more`} aria-disabled={disabled} onClick={() => step(1)}>
        +
      </button>
    </div>
  );
}
