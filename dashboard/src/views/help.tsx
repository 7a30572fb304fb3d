/** The keys, and what the colours mean. */

import type { ComponentChildren } from "preact";
import { Dialog } from "../parts/dialog";
import { Dot } from "../parts/basics";
import { MEANING, STATES } from "../model/machines";

export const KEYS: [string, string][] = [
  ["/", "Search or filter"],
  ["g f", "Fleet"],
  ["g m", "Machines"],
  ["g a", "Activity"],
  ["g n", "Nodes"],
  ["g i", "Images"],
  ["c", "Create"],
  ["?", "This help"],
  ["Esc", "Close, or leave a field"],
];

export function Help({ theme, onClose }: { theme: ComponentChildren; onClose: () => void }) {
  return (
    <Dialog title="Help" onClose={onClose}>
      <h3>Keys</h3>
      <dl class="keys">
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>
              {key.split(" ").map((each) => (
                <kbd key={each}>{each}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <h3>Machines</h3>
      <ul class="legend">
        {STATES.map((each) => (
          <li key={each}>
            <Dot state={each} /> {MEANING[each]}
          </li>
        ))}
      </ul>
      <h3>Theme</h3>
      {theme}
      <p class="note">Everything here is one request to the Kubernetes API with your own rights; each action shows the kubectl line that does the same.</p>
      <div class="buttons">
        <button type="button" class="primary" autofocus onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
