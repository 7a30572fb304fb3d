/** YAML of an object: read, tried on the server (dry run), and written. Errors stand at their field. */

import type { ComponentChildren } from "preact";
import { memo } from "preact/compat";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, explain } from "../api/client";
import { useApp } from "../app-context";
import { lineOfField } from "../model/create";
import { Command } from "./basics";

interface Fault {
  line: number;
  message: string;
}

export interface Target {
  method: "POST" | "PUT";
  path: string;
  /** The line of kubectl that does the same with this text. */
  command: (yaml: string) => string;
}

/** Return the faults that an answer of the server names, each with its line in the text. */
export function faultsOf(error: unknown, yaml: string): Fault[] {
  if (!(error instanceof ApiError)) return [{ line: 0, message: explain(error) }];
  const causes = (error.status.details?.causes ?? []).filter((each) => !each.field?.includes("<nil>"));
  if (causes.length === 0) {
    const field = /unknown field "([^"]+)"/.exec(error.message)?.[1] ?? "";
    return [{ line: lineOfField(yaml, field), message: explain(error) }];
  }
  return causes.map(({ field = "", message = "" }) => ({ line: lineOfField(yaml, field), message: field ? `${field}: ${message}` : message }));
}

/** The numbers of lines: a text, as there may be very many, with elements for faulty lines alone. */
const LineNumbers = memo(({ lines, faults }: { lines: number; faults: readonly Fault[] }) => {
  const marked = [...new Set(faults.map((each) => each.line))].filter((each) => each > 0 && each <= lines).sort((one, other) => one - other);
  const parts: ComponentChildren[] = [];
  let from = 1;
  for (const line of marked) {
    parts.push(numbers(from, line), <span key={line} class="fault">{`${line}\n`}</span>);
    from = line + 1;
  }
  return <>{[...parts, numbers(from, lines + 1)]}</>;
});

function numbers(from: number, to: number): string {
  return Array.from({ length: to - from }, (_, index) => `${from + index}\n`).join("");
}

export function YamlEditor(props: {
  value: string;
  onInput: (value: string) => void;
  target: (object: { metadata?: { name?: string; namespace?: string } }) => Target | string;
  onDone: (object: { metadata: { name: string; namespace?: string }; kind?: string }) => void;
  verb: string;
  refusal: string;
}) {
  const { value, onInput, target, onDone, verb, refusal } = props;
  const { cluster } = useApp();
  const area = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLPreElement>(null);
  const [faults, setFaults] = useState<Fault[]>([]);
  const [verdict, setVerdict] = useState("");
  const [command, setCommand] = useState("");
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    setFaults([]);
    setVerdict("");
  }, [value]);

  const send = async (isDryRun: boolean) => {
    setBusy(true);
    try {
      const { parse } = await import("yaml");
      const object = parse(value) as { metadata?: { name?: string; namespace?: string } } | null;
      const to = object && typeof object === "object" ? target(object) : "The text is no object.";
      if (typeof to === "string") return setFaults([{ line: 0, message: to }]);
      setCommand(to.command(value));
      const query = { fieldValidation: "Strict", ...cluster.client.manager, ...(isDryRun ? { dryRun: "All" } : {}) };
      const answer = await cluster.client.json<{ metadata: { name: string; namespace?: string }; kind?: string }>(to.path, { method: to.method, body: object, query });
      setFaults([]);
      if (isDryRun) setVerdict("The server accepts it. Nothing has been changed yet.");
      else onDone(answer);
    } catch (error) {
      setVerdict("");
      const linePos = (error as { linePos?: [{ line: number }] }).linePos;
      setFaults(linePos ? [{ line: linePos[0].line, message: (error as Error).message.split("\n")[0]?.replace(/ at line \d+, column \d+:$/, "") ?? "" }] : faultsOf(error, value));
    } finally {
      setBusy(false);
    }
  };
  const scrollTo = (line: number) => {
    const element = area.current;
    if (element && line > 0) element.scrollTop = (line - 4) * Number.parseFloat(getComputedStyle(element).lineHeight);
  };
  useEffect(() => scrollTo(faults[0]?.line ?? 0), [faults]);
  const show = (line: number) => {
    const element = area.current;
    if (!element || line === 0) return;
    const from = value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    element.focus();
    element.setSelectionRange(from, from + (value.split("\n")[line - 1]?.length ?? 0));
    scrollTo(line);
  };
  const lines = value.split("\n").length;
  return (
    <div class="yaml">
      <div class="editor">
        <pre ref={gutter} class="gutter" aria-hidden="true">
          <LineNumbers lines={lines} faults={faults} />
        </pre>
        <textarea
          ref={area}
          aria-label="YAML"
          aria-invalid={faults.length > 0}
          aria-describedby="yaml-faults"
          spellcheck={false}
          autocomplete="off"
          wrap="off"
          value={value}
          onInput={(event) => onInput(event.currentTarget.value)}
          onScroll={(event) => gutter.current && (gutter.current.scrollTop = event.currentTarget.scrollTop)}
        />
      </div>
      <div id="yaml-faults" class="faults" aria-live="polite">
        {faults.map((each) => (
          <p key={each.line + each.message} class="fault">
            {each.line > 0 && (
              <button type="button" class="quiet" onClick={() => show(each.line)}>
                Line {each.line}
              </button>
            )}{" "}
            {each.message}
          </p>
        ))}
        {verdict && <p class="good">{verdict}</p>}
      </div>
      <div class="buttons">
        <button type="button" class="primary" disabled={isBusy} aria-disabled={refusal ? "true" : undefined} title={refusal || undefined} onClick={() => !refusal && send(false)}>
          {verb}
        </button>
        <button type="button" disabled={isBusy} aria-disabled={refusal ? "true" : undefined} onClick={() => !refusal && send(true)}>
          Try it (dry run)
        </button>
        {refusal && <span class="note">{refusal}</span>}
      </div>
      {command && <Command line={command} />}
    </div>
  );
}
