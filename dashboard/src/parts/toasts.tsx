/** Messages about what was done, with the command that does the same, and undo where there is one. */

import type { Action } from "../model/actions";
import { Command } from "./basics";

export interface Toast {
  id: number;
  kind: "info" | "error";
  message: string;
  /** The view of what was made. */
  link?: string;
  command?: string;
  undo?: Action;
}

export function Toasts({ toasts, onClose, onUndo }: { toasts: readonly Toast[]; onClose: (id: number) => void; onUndo: (toast: Toast) => void }) {
  return (
    <section class="toasts" aria-label="Messages" aria-live="polite">
      {toasts.map((each) => (
        <div key={each.id} class={`toast ${each.kind}`} role={each.kind === "error" ? "alert" : "status"}>
          <div class="line">
            <strong>{each.link ? <a href={each.link}>{each.message}</a> : each.message}</strong>
            {each.undo && (
              <button type="button" onClick={() => onUndo(each)}>
                Undo
              </button>
            )}
            <button type="button" class="quiet" aria-label="Close this message" onClick={() => onClose(each.id)}>
              ×
            </button>
          </div>
          {each.command && <Command line={each.command} />}
        </div>
      ))}
    </section>
  );
}
