/** All machines in one list, with a filter. */

import { useMemo, useState } from "preact/hooks";
import { useApp } from "../app-context";
import { Age, Command, Empty, MachineLink, StateText, Title } from "../parts/basics";
import { Legend } from "../parts/squares";
import { VirtualList } from "../parts/virtual-list";
import { imageOf, type Machine } from "../model/machines";

const ROW_HEIGHT = 36;
const COLUMNS = ["Name", "State", "Belongs to", "Node", "Address", "Age"];

/** Return the machines whose name, state, set, node, address, image or label contains every word. */
export function search(machines: readonly Machine[], text: string, state: string): readonly Machine[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0 && !state) return machines;
  return machines.filter((each) => {
    if (state && each.state !== state) return false;
    if (words.length === 0) return true;
    const labels = Object.entries(each.vmi?.metadata.labels ?? each.vm?.metadata.labels ?? {}).map(([key, value]) => `${key}=${value}`);
    const haystack = [each.namespace, each.name, each.state, each.owner?.name, each.node, each.address, imageOf(each), ...labels].join(" ").toLowerCase();
    return words.every((word) => haystack.includes(word));
  });
}

export function MachinesView() {
  const { fleet } = useApp();
  const [text, setText] = useState("");
  const [state, setState] = useState("");
  const found = useMemo(() => search(fleet.sorted, text, state), [fleet.sorted, fleet.machines, text, state]);
  return (
    <>
      <Title name="Machines">
        <input type="search" class="search" placeholder="Filter: name, node, address, label" aria-label="Filter machines" aria-keyshortcuts="/" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </Title>
      <Legend counts={fleet.counts} picked={state} onPick={setState} />
      <MachineTable machines={found} />
      <p class="note" role="status">
        {found.length === fleet.sorted.length ? `${found.length} machines` : `${found.length} of ${fleet.sorted.length} machines`}
      </p>
    </>
  );
}

export function MachineTable({ machines }: { machines: readonly Machine[] }) {
  if (machines.length === 0)
    return (
      <Empty title="No machines here">
        <Command line="kubectl get vmi -A" />
      </Empty>
    );
  return (
    <VirtualList
      class="machines"
      label="Machines"
      columns={COLUMNS}
      items={machines}
      rowHeight={ROW_HEIGHT}
      keyOf={(each) => each.key}
      render={(each) => (
        <>
          <span role="cell" class="strong" title={each.name}>
            <MachineLink machine={each} />
          </span>
          <span role="cell" title={each.detail}>
            <StateText state={each.state} />
            {(each.state === "failed" || each.state === "waiting") && <span class="note wide"> {each.detail}</span>}
          </span>
          <span role="cell" class="wide">{each.owner?.name ?? "—"}</span>
          <span role="cell" class="wide">{each.node || "—"}</span>
          <span role="cell" class="mono wide">{each.address || "—"}</span>
          <span role="cell">
            <Age since={each.created} />
          </span>
        </>
      )}
    />
  );
}
