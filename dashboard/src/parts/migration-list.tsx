/** Migrations that are under way, or wait for a node. */

import { useApp } from "../app-context";
import { text, type KubeObject } from "../api/objects";
import { deleteObject } from "../model/actions";
import { href } from "../model/routes";
import { ActionButton, Age, Lines } from "./basics";

const ENDED = ["Succeeded", "Failed"];
const CANCEL_WARNING = "The machine stays where it is, and goes on.";

/** Those of one machine, or all of them without one. */
export function MigrationList({ namespace, name }: { namespace?: string; name?: string }) {
  const { world } = useApp();
  const running = world.migrations.items.filter(
    (each) => !ENDED.includes(text(each, "status", "phase")) && (!name || (text(each, "spec", "vmiName") === name && each.metadata.namespace === namespace)),
  );
  if (running.length === 0) return null;
  return (
    <Lines id="migrations" title="Migrations">
      {running.map((each) => (
        <MigrationLine key={each.metadata.uid} migration={each} />
      ))}
    </Lines>
  );
}

function MigrationLine({ migration }: { migration: KubeObject }) {
  const { cluster } = useApp();
  const { namespace = "", name, creationTimestamp } = migration.metadata;
  const machine = text(migration, "spec", "vmiName");
  const phase = text(migration, "status", "phase") || "Pending";
  const path = cluster.path("migrations", namespace, name);
  return (
    <li class="line">
      <span class="square migrating" aria-hidden="true" />
      <a href={href("machine", namespace, machine)}>{machine}</a>
      <span class="grow note">{["Pending", "Scheduling"].includes(phase) ? `${phase}: it waits for a node that fits` : phase}</span>
      <Age since={creationTimestamp} />
      <ActionButton action={{ ...deleteObject("migrations", migration, path, CANCEL_WARNING), label: "Cancel migration" }} class="danger" />
    </li>
  );
}
