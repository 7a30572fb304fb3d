/** The fleet: what is wrong, sets, pools and warm pools with their machines, claims, nodes. */

import { memo } from "preact/compat";
import { useApp } from "../app-context";
import { absentKinds, has, isFleetLoading } from "../api/cluster";
import { KINDS } from "../api/kinds";
import { condition, count, isTrue, text, type KubeObject } from "../api/objects";
import { ActionButton, Age, Command, Empty, Lines, Title } from "../parts/basics";
import { MigrationList } from "../parts/migration-list";
import { ProblemList } from "../parts/problem-list";
import { Legend, Squares } from "../parts/squares";
import { Stepper } from "../parts/stepper";
import { claim, deleteObject, deleteRow, pauseRow, scale } from "../model/actions";
import { poolOf, type Row } from "../model/fleet";
import { describeCounts, type Machine } from "../model/machines";
import { problemsOf, type Problem } from "../model/problems";
import { href } from "../model/routes";
import { NodeCards } from "./nodes";

export function FleetView() {
  const { world, fleet } = useApp();
  const isLoading = isFleetLoading(world) && fleet.sorted.length === 0;
  const isInstalled = has(world, "vmis");
  const isEmpty = isInstalled && !isLoading && fleet.rows.length === 0 && fleet.sorted.length === 0;
  return (
    <>
      <Title name="Fleet">
        {isInstalled && (
          <a class="button primary" href={href("create")}>
            Create
          </a>
        )}
      </Title>
      {isInstalled && <Problems problems={problemsOf(world, fleet)} isLoading={isLoading} />}
      {fleet.sorted.length > 0 && <Legend counts={fleet.counts} />}
      {isEmpty && <FirstSteps />}
      <Rows />
      {fleet.single.length > 0 && <Group title="On their own" machines={fleet.single} note="Machines that belong to no set." />}
      <Claims claimed={fleet.claimed} />
      <Checkpoints />
      <MigrationList />
      {has(world, "nodes") && <NodeCards />}
      {isInstalled && <Absent />}
    </>
  );
}

/** Names the kinds that a Kubernetes with another KubeVirt does not have. */
function Absent() {
  const absent = absentKinds(useApp().world);
  if (absent.length === 0) return null;
  return <p class="note">This server does not have: {absent.map((each) => KINDS[each].titles).join(", ")}.</p>;
}

function Problems({ problems, isLoading }: { problems: readonly Problem[]; isLoading: boolean }) {
  if (isLoading) return <section class="problems" aria-busy="true" aria-label="What is wrong" />;
  if (problems.length > 0) return <ProblemList problems={problems} />;
  return (
    <section class="problems fine" aria-label="What is wrong">
      <p>Nothing is wrong.</p>
    </section>
  );
}

function FirstSteps() {
  return (
    <Empty title="No machines yet">
      <p>
        <a href={href("create")}>Create a set, a pool or a machine</a> here, or in a terminal:
      </p>
      <Command line="kubectl create -f examples/testreplicaset.yaml" />
      <p>Then watch it become ready, scale it, and open a machine's console.</p>
      <Command line="kubectl scale vmirs testreplicaset --replicas=5" />
    </Empty>
  );
}

function Rows() {
  const { fleet } = useApp();
  if (fleet.rows.length === 0) return null;
  return (
    <section aria-labelledby="sets">
      <h2 id="sets">Sets and pools</h2>
      <ul class="cards">
        {fleet.rows.map((row) => (
          <RowCard key={row.key} row={row} />
        ))}
      </ul>
    </section>
  );
}

/** Sets with more machines get a bar as wide as the page. */
const LARGE = 60;

const RowCard = memo(({ row }: { row: Row }) => {
  const title = KINDS[row.kind].title;
  const pool = poolOf(row);
  return (
    <li class={`card set${row.machines.length > LARGE ? " large" : ""}`}>
      <div class="what">
        <a class="name" href={href("set", row.kind, row.namespace, row.name)}>
          {row.name}
        </a>
        <span class="note">
          {title} · {row.namespace}
          {row.image && ` · ${row.image}`}
        </span>
      </div>
      <div class="fill">
        <Squares machines={row.machines} missing={row.desired - row.machines.length} label={`Machines of ${row.name}: ${describeCounts(row.counts)}`} />
        <p class="numbers">
          {pool ? (
            <span>
              Checkpoint <strong>{isTrue(row.object, "Ready") ? "ready" : "not ready"}</strong> for new machines of {pool}
            </span>
          ) : (
            <>
              <strong>{row.ready}</strong> of {row.desired} ready
            </>
          )}
          {row.current !== row.desired && <span> · {row.current} there</span>}
          {row.isPaused && <span class="badge">paused</span>}
          {row.isLeaving && <span class="badge">being deleted</span>}
          {row.outdated > 0 && <span class="badge">{row.outdated} on an older template</span>}
          {row.kind === "warmPools" && !pool && <span> · {count(row.object, ["status", "claimedReplicas"])} handed out</span>}
        </p>
      </div>
      <RowControls row={row} />
    </li>
  );
});

/** Stepper, pause and deletion of a set. */
export function RowControls({ row }: { row: Row }) {
  const { cluster, world, perform } = useApp();
  const path = cluster.path(row.kind, row.namespace, row.name);
  const pause = pauseRow(row, path, !row.isPaused);
  const rights = world.rights.of(row.namespace);
  const refusal = rights.refusal(scale(row, path, row.desired, rights).deed);
  const hasMachines = !poolOf(row);
  return (
    <div class="controls">
      {hasMachines && (
        <Stepper
          value={row.desired}
          label={`Scale ${row.name}`}
          refusal={row.isLeaving ? "It is being deleted." : refusal}
          onChange={(replicas) => perform(scale(row, path, replicas, rights))}
        />
      )}
      {row.kind === "warmPools" && hasMachines && <ActionButton action={claim(row, "")} />}
      {pause && <ActionButton action={pause} />}
      <ActionButton action={deleteRow(row, path)} class="danger" />
    </div>
  );
}

function Group({ title, note, machines }: { title: string; note: string; machines: readonly Machine[] }) {
  return (
    <section>
      <h2>{title}</h2>
      <div class="card">
        <Squares machines={machines} missing={0} label={title} />
        <p class="numbers">
          {machines.length} · {note} <a href={href("machines")}>List all machines</a>
        </p>
      </div>
    </section>
  );
}

function Claims({ claimed }: { claimed: readonly Machine[] }) {
  const { world, cluster } = useApp();
  const claims = world.claims.items;
  if (claims.length === 0) return null;
  return (
    <Lines id="claims" title="Claims">
      {claims.map((each) => (
        <ClaimLine key={each.metadata.uid} claim={each} machine={claimed.find((one) => one.name === text(each, "status", "vmi", "name"))} path={cluster.path("claims", each.metadata.namespace, each.metadata.name)} />
      ))}
    </Lines>
  );
}

function ClaimLine({ claim: object, machine, path }: { claim: KubeObject; machine: Machine | undefined; path: string }) {
  const { name, namespace = "" } = object.metadata;
  const bound = condition(object, "Bound");
  const vmi = text(object, "status", "vmi", "name");
  const expires = text(object, "status", "expiresAt");
  const ssh = text(object, "status", "ssh");
  return (
    <li class="line">
      <span class={`square ${machine?.state ?? (isTrue(object, "Expired") ? "done" : "waiting")}`} aria-hidden="true" />
      <strong>{name}</strong>
      <span class="grow note">
        {vmi ? (
          <>
            has <a href={href("machine", namespace, vmi)}>{vmi}</a>
          </>
        ) : (
          "waits for a machine"
        )}{" "}
        of {text(object, "spec", "warmPoolRef", "name")}
        {!vmi && bound?.message && `: ${bound.message}`}
        {expires && ` · until ${new Date(expires).toLocaleTimeString()}`}
      </span>
      {ssh && <Command line={ssh} label={`Log in to ${vmi}`} />}
      <ActionButton action={deleteObject("claims", object, path, vmi ? `Its machine ${vmi} goes with it.` : "It has no machine yet.")} class="danger" />
    </li>
  );
}

function Checkpoints() {
  const { world, cluster } = useApp();
  const { items } = world.checkpoints;
  if (items.length === 0) return null;
  return (
    <Lines id="checkpoints" title="Checkpoints">
      {items.map((each) => {
        const { name, namespace = "" } = each.metadata;
        const state = isTrue(each, "Failed") ? "failed" : isTrue(each, "Ready") ? "ready" : "starting";
        return (
          <li class="line" key={each.metadata.uid}>
            <span class={`square ${state}`} aria-hidden="true" />
            <strong>{name}</strong>
            <span class="grow note">
              {state === "starting" ? "being made" : state} · of {text(each, "spec", "source", "name")} · {count(each, ["status", "forks"])} forks · <Age since={each.metadata.creationTimestamp} />
            </span>
            <ActionButton action={deleteObject("checkpoints", each, cluster.path("checkpoints", namespace, name), "Machines that have started from it go on; no new one can.")} class="danger" />
          </li>
        );
      })}
    </Lines>
  );
}
