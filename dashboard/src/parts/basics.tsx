/** Small parts: ages, states, command lines, empty states, buttons of actions. */

import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { useApp, useNow } from "../app-context";
import type { Action } from "../model/actions";
import { MEANING, type Machine, type State } from "../model/machines";
import { href } from "../model/routes";
import { age } from "../model/time";

export function Age({ since }: { since: string | undefined }) {
  const now = useNow();
  if (!since) return null;
  return (
    <time dateTime={since} title={new Date(since).toLocaleString()} class="age">
      {age(since, now)}
    </time>
  );
}

export function Dot({ state }: { state: State }) {
  return <span class={`square ${state}`} aria-hidden="true" />;
}

export function StateText({ state }: { state: State }) {
  return (
    <span class="state">
      <Dot state={state} /> {MEANING[state]}
    </span>
  );
}

export function MachineLink({ machine }: { machine: Machine }) {
  return <a href={href("machine", machine.namespace, machine.name)}>{machine.name}</a>;
}

const COPIED_MS = 1500;

/** A command line with a button that copies it. */
export function Command({ line, label = "Command" }: { line: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  const text = useRef<HTMLElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line);
      setCopied(true);
      setTimeout(() => setCopied(false), COPIED_MS);
    } catch {
      // The clipboard is not permitted: select the line, so that the keyboard copies it.
      if (text.current) getSelection()?.selectAllChildren(text.current);
    }
  };
  return (
    <div class="command">
      <code ref={text} tabIndex={0} aria-label={label}>
        {line}
      </code>
      <button type="button" class="quiet" onClick={copy} aria-label={`Copy: ${line.split("\n")[0]}`}>
        {copied ? "Copied" : "Copy"}
      </button>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h3>{title}</h3>
      {children}
    </div>
  );
}

/** The head of a view: its title, a line below it, and what can be done. */
export function Title({ name, note, children }: { name: string; note?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <header class="title">
      <div>
        <h1>{name}</h1>
        {note && <p class="note">{note}</p>}
      </div>
      {children}
    </header>
  );
}

/** A section with a line for each object. */
export function Lines({ id, title, children }: { id: string; title: string; children: ComponentChildren }) {
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      <ul class="lines">{children}</ul>
    </section>
  );
}

/** A button for an action; where the user's role does not permit it, it says so and does nothing. */
export function ActionButton({ action, class: name = "" }: { action: Action; class?: string }) {
  const { perform, world } = useApp();
  const refusal = world.rights.of(action.namespace).refusal(action.deed) || action.unavailable;
  return (
    <button
      type="button"
      class={name}
      title={refusal || action.command}
      aria-disabled={refusal ? "true" : undefined}
      onClick={() => !refusal && perform(action)}
    >
      {action.label}
      {refusal && <span class="hidden">{`: ${refusal}`}</span>}
    </button>
  );
}

export function Meter({ value, label, text }: { value: number; label: string; text: string }) {
  const share = Math.max(0, Math.min(1, Number.isFinite(value) ? value : 0));
  return (
    <div class="meter">
      <span>{label}</span>
      <progress max={1} value={share} class={share > 0.9 ? "high" : ""} aria-label={`${label}: ${text}`} />
      <span class="number">{text}</span>
    </div>
  );
}

export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {rows
        .filter(([, value]) => value !== "" && value !== undefined && value !== null)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
