/** One set, pool or warm pool: its numbers, its machines, its events, its YAML. */

import { useState } from "preact/hooks";
import { useApp } from "../app-context";
import { KINDS } from "../api/kinds";
import { conditions, text, type KubeEvent } from "../api/objects";
import { Age, Empty, Facts, Title } from "../parts/basics";
import { EventList } from "../parts/event-list";
import { ProblemList } from "../parts/problem-list";
import { Squares } from "../parts/squares";
import { Tabs } from "../parts/tabs";
import { rowKey, type Row, type SetKind } from "../model/fleet";
import { describeCounts } from "../model/machines";
import { problemsOfMachines, problemsOfRow } from "../model/problems";
import { href } from "../model/routes";
import { RowControls } from "./fleet";
import { MachineTable } from "./machines";
import { ObjectYaml } from "./object-yaml";

const TABS = ["Machines", "Events", "YAML"] as const;

export function SetView({ parts }: { parts: readonly string[] }) {
  const { fleet, world } = useApp();
  const [kind = "sets", namespace = "", name = ""] = parts;
  const [tab, setTab] = useState<(typeof TABS)[number]>("Machines");
  const row = fleet.rows.find((each) => each.key === rowKey(kind as SetKind, namespace, name));
  if (!row) {
    const isLoading = world[kind as SetKind]?.phase === "loading";
    return (
      <Empty title={isLoading ? "One moment …" : `There is no ${name} in ${namespace}`}>
        {!isLoading && <a href={href("fleet")}>Back to the fleet</a>}
      </Empty>
    );
  }
  return (
    <>
      <Title name={row.name} note={`${KINDS[row.kind].title} in ${row.namespace}`}>
        <RowControls row={row} />
      </Title>
      <ProblemList problems={[...problemsOfMachines(row.machines, world.nodes.items), ...problemsOfRow(row)]} />
      <Summary row={row} />
      <Tabs tabs={TABS} current={tab} onPick={setTab} label={`About ${row.name}`}>
        {tab === "Machines" && <MachineTable machines={row.machines} />}
        {tab === "Events" && <SetEvents row={row} />}
        {tab === "YAML" && <ObjectYaml kind={row.kind} namespace={row.namespace} name={row.name} />}
      </Tabs>
    </>
  );
}

function Summary({ row }: { row: Row }) {
  const failing = conditions(row.object).filter((each) => each.message);
  return (
    <div class="card">
      <Squares machines={row.machines} missing={row.desired - row.machines.length} label={`Machines: ${describeCounts(row.counts)}`} />
      <p class="numbers">
        <strong>{row.ready}</strong> of {row.desired} ready{row.ready !== row.desired && ` · ${describeCounts(row.counts)}`}
        {row.isPaused && <span class="badge">paused</span>}
      </p>
      {row.outdated > 0 && (
        <p>
          {row.machines.length - row.outdated} of {row.machines.length} machines run the newest template.
          <progress class="rollout" max={row.machines.length} value={row.machines.length - row.outdated} aria-label="Machines on the newest template" />
        </p>
      )}
      <Facts
        rows={[
          ["Image", row.image],
          ["Created", <Age key="age" since={row.object.metadata.creationTimestamp} />],
          ["Selector", text(row.object, "status", "labelSelector")],
          ...failing.map((each): [string, string] => [each.type, each.message ?? ""]),
        ]}
      />
    </div>
  );
}

function SetEvents({ row }: { row: Row }) {
  const { world } = useApp();
  const { kind } = KINDS[row.kind];
  const events = (world.events.items as readonly KubeEvent[]).filter(
    ({ involvedObject: about }) => about?.kind === kind && about.name === row.name && about.namespace === row.namespace,
  );
  return <EventList events={events} />;
}
