/** One machine: state, usage, how it started, events, console, screen, log, YAML. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { useApp } from "../app-context";
import { has } from "../api/cluster";
import { ApiError, explain } from "../api/client";
import { condition, conditions, count, isTrue, list, text, type KubeEvent } from "../api/objects";
import { ActionButton, Age, Command, Empty, Facts, StateText } from "../parts/basics";
import { Console } from "../parts/console";
import { EventList } from "../parts/event-list";
import { Screen } from "../parts/screen";
import { Sparkline } from "../parts/sparkline";
import { Tabs } from "../parts/tabs";
import { checkpoint, deleteMachine, fork, kubectl, machineActions } from "../model/actions";
import { isAbout } from "../model/activity";
import { setKindOf } from "../model/fleet";
import { imageOf, type Machine } from "../model/machines";
import { bytes, parseQuantity, processors } from "../model/quantity";
import { problemOf } from "../model/problems";
import { href } from "../model/routes";
import { timelineOf, type Stage } from "../model/timeline";
import { duration } from "../model/time";
import { ObjectYaml } from "./object-yaml";

const TABS = ["Overview", "Console", "Screen", "Log", "YAML"] as const;
type Tab = (typeof TABS)[number];

export function MachineView({ parts }: { parts: readonly string[] }) {
  const { fleet, world } = useApp();
  const [namespace = "", name = "", shown = ""] = parts;
  const machine = fleet.machines.get(`${namespace}/${name}`);
  const tab = TABS.find((each) => each.toLowerCase() === shown) ?? "Overview";
  const pick = (next: Tab) => location.replace(href("machine", namespace, name, next.toLowerCase()));
  if (!machine) {
    const isLoading = world.vmis.phase === "loading" || world.vms.phase === "loading";
    return (
      <Empty title={isLoading ? "One moment …" : `There is no machine ${name} in ${namespace}`}>
        {!isLoading && (
          <p>
            It has been deleted. A member of a set has a successor: <a href={href("fleet")}>back to the fleet</a>.
          </p>
        )}
      </Empty>
    );
  }
  return (
    <>
      <header class="title">
        <div>
          <h1>{machine.name}</h1>
          <p class="note">
            <StateText state={machine.state} /> · {machine.namespace}
            <OwnerLink machine={machine} />
          </p>
        </div>
        <MachineControls machine={machine} />
      </header>
      <Trouble machine={machine} />
      <Tabs tabs={TABS} current={tab} onPick={pick} label={`About ${machine.name}`}>
        {tab === "Overview" && <Overview machine={machine} />}
        {tab === "Console" && <Running machine={machine} what="console">{() => <Console namespace={namespace} name={name} />}</Running>}
        {tab === "Screen" && <Running machine={machine} what="vnc">{() => <Screen namespace={namespace} name={name} />}</Running>}
        {tab === "Log" && <ConsoleLog machine={machine} />}
        {tab === "YAML" && <ObjectYaml key={machine.vm ? "vm" : "vmi"} kind={machine.vm ? "vms" : "vmis"} namespace={namespace} name={name} />}
      </Tabs>
    </>
  );
}

function OwnerLink({ machine }: { machine: Machine }) {
  const { owner } = machine;
  const kind = owner && setKindOf(owner.kind);
  if (!owner) return null;
  return <> · of {kind ? <a href={href("set", kind, machine.namespace, owner.name)}>{owner.name}</a> : owner.name}</>;
}

function MachineControls({ machine }: { machine: Machine }) {
  const { world } = useApp();
  return (
    <div class="controls">
      {machineActions(machine).map((each) => (
        <ActionButton key={each.id} action={each} />
      ))}
      {has(world, "checkpoints") && machine.vmi && <ForkControls machine={machine} />}
      <ActionButton action={deleteMachine(machine)} class="danger" />
    </div>
  );
}

/** A fork is made of a checkpoint: of the newest of this machine, or of one that is made first. */
function ForkControls({ machine }: { machine: Machine }) {
  const { world } = useApp();
  const mine = world.checkpoints.items.filter((each) => each.metadata.namespace === machine.namespace && text(each, "spec", "source", "name") === machine.name);
  const isMaking = mine.some((each) => !isTrue(each, "Ready") && !isTrue(each, "Failed"));
  const ready = mine.filter((each) => isTrue(each, "Ready")).sort((one, other) => (other.metadata.creationTimestamp ?? "").localeCompare(one.metadata.creationTimestamp ?? ""))[0];
  if (machine.state !== "ready" && machine.state !== "unready" && !ready) return null;
  return (
    <>
      {isMaking ? <span class="badge">checkpoint is being made</span> : <ActionButton action={checkpoint(machine)} />}
      {ready && machine.vmi && <ActionButton action={fork(machine.vmi, ready)} />}
    </>
  );
}

function Trouble({ machine }: { machine: Machine }) {
  const problem = problemOf(machine);
  if (!problem) return null;
  return (
    <section class="problems" aria-label="What is wrong">
      <ul>
        <li class="error">
          <strong>{problem.title}</strong>
          <p class="reason">{problem.reason}</p>
          <p class="remedy">{problem.remedy}</p>
        </li>
      </ul>
    </section>
  );
}

function Running({ machine, what, children }: { machine: Machine; what: "console" | "vnc"; children: () => preact.ComponentChildren }) {
  const { world } = useApp();
  const resource = `virtualmachineinstances/${what}`;
  const refusal = world.rights.refusal({ verb: "get", group: "subresources.kubevirt.io", resource, name: machine.name }, machine.namespace);
  if (refusal) return <Empty title={refusal} />;
  if (text(machine.vmi, "status", "phase") !== "Running")
    return (
      <Empty title={`${machine.name} does not run`}>
        <p>Its {what === "vnc" ? "screen" : "console"} opens here when it does.</p>
      </Empty>
    );
  return (
    <>
      <Command line={`virtctl ${what} ${machine.name} -n ${machine.namespace}`} />
      {children()}
    </>
  );
}

function Overview({ machine }: { machine: Machine }) {
  const { world } = useApp();
  const events = useMemo(
    () => (world.events.items as readonly KubeEvent[]).filter((each) => isAbout(each, machine.namespace, machine.name)),
    [world.events, machine.key],
  );
  return (
    <div class="columns">
      <section class="card" aria-labelledby="facts">
        <h2 id="facts">Facts</h2>
        <MachineFacts machine={machine} />
      </section>
      <MachineUsage machine={machine} />
      <Timeline machine={machine} events={events} />
      <section class="card" aria-labelledby="conditions">
        <h2 id="conditions">Conditions</h2>
        <ul class="conditions">
          {conditions(machine.vmi ?? machine.vm).map((each) => (
            <li key={each.type}>
              <span class={each.status === "True" ? "yes" : "no"}>{each.status === "True" ? "✓" : "–"}</span> {each.type}
              <span class="hidden">{`: ${each.status}`}</span>
              {each.message && <span class="note"> {each.message}</span>}
            </li>
          ))}
        </ul>
      </section>
      <section class="card span" aria-labelledby="events">
        <h2 id="events">Events</h2>
        <EventList events={events} />
      </section>
    </div>
  );
}

function MachineFacts({ machine }: { machine: Machine }) {
  const { vmi, vm } = machine;
  const domain = (vmi ?? { spec: {} }).spec as { domain?: unknown };
  const addresses = list(vmi, "status", "interfaces").flatMap((each) => list(each, "ipAddresses")).filter((each): each is string => typeof each === "string");
  const cores = count(domain, ["domain", "cpu", "cores"], 1) * count(domain, ["domain", "cpu", "sockets"], 1) * count(domain, ["domain", "cpu", "threads"], 1);
  return (
    <Facts
      rows={[
        ["Detail", machine.detail],
        ["Address", addresses.join(", ")],
        ["Node", machine.node],
        ["Image", imageOf(machine)],
        ["Processors", vmi ? String(cores) : ""],
        ["Memory", text(vmi, "spec", "domain", "memory", "guest") || text(vmi, "spec", "domain", "resources", "requests", "memory")],
        ["Guest", text(vmi, "status", "guestOSInfo", "prettyName") || text(vmi, "status", "guestOSInfo", "name")],
        ["Run strategy", text(vm, "spec", "runStrategy")],
        ["Age", <Age key="age" since={machine.created} />],
        ["Template", machine.isOutdated ? "older than its pool's: restart it to take the new one" : ""],
        ["Live migration", condition(vmi, "LiveMigratable")?.status === "False" ? "not possible" : ""],
      ]}
    />
  );
}

function MachineUsage({ machine }: { machine: Machine }) {
  const { world } = useApp();
  const samples = world.usage.machines.get(machine.key) ?? [];
  const memory = parseQuantity(text(machine.vmi, "spec", "domain", "memory", "guest"));
  return (
    <section class="card" aria-labelledby="usage">
      <h2 id="usage">Usage</h2>
      {samples.length === 0 ? (
        <>
          <p class="note">{world.usage.available ? "No samples yet: a machine that runs is measured every 15 s." : "The server has no metrics.k8s.io."}</p>
          <Command line={kubectl(machine.namespace, "top", "pod", "-l", `vm.kubevirt.io/name=${machine.name}`)} />
        </>
      ) : (
        <>
          <Sparkline samples={samples} value={(each) => each.cpu} label="CPU" format={processors} />
          <Sparkline samples={samples} value={(each) => each.memory} most={memory * 1.5} label="Memory, with QEMU's own" format={bytes} />
        </>
      )}
    </section>
  );
}

function Timeline({ machine, events }: { machine: Machine; events: readonly KubeEvent[] }) {
  const stages = useMemo(() => (machine.vmi ? timelineOf(machine.vmi, events) : []), [machine.vmi, events]);
  const longest = Math.max(...stages.map((each) => each.took), 1);
  const total = (stages.at(-1)?.time ?? 0) - (stages[0]?.time ?? 0);
  return (
    <section class="card" aria-labelledby="timeline">
      <h2 id="timeline">Start{stages.length > 1 && <span class="note"> {duration(total)} in all</span>}</h2>
      {stages.length === 0 && <p class="note">It does not run.</p>}
      <ol class="timeline">
        {stages.map((each) => (
          <li key={each.label} title={each.detail}>
            <span class="label">{each.label}</span>
            <progress max={longest} value={each.took} aria-hidden="true" tabIndex={-1} />
            <span class="number">
              {lengthOf(each)}
            </span>
          </li>
        ))}
      </ol>
      {stages.some((each) => each.took >= 1000 && !each.isPrecise) && <p class="note">~ is known to the second only.</p>}
    </section>
  );
}

/** Conditions have times in seconds: a stage that they end within one has taken less than it. */
function lengthOf(stage: Stage): string {
  if (stage.label === "Created") return "0";
  if (stage.isPrecise) return duration(stage.took);
  return stage.took < 1000 ? "< 1 s" : `~${duration(stage.took)}`;
}

const LOG_LINES = "1000";

function ConsoleLog({ machine }: { machine: Machine }) {
  const { cluster } = useApp();
  const [log, setLog] = useState<string | undefined>(undefined);
  const [turn, setTurn] = useState(0);
  const { namespace, name } = machine;
  const selector = `vm.kubevirt.io/name=${name}`;
  useEffect(() => {
    const abort = new AbortController();
    const { signal } = abort;
    void (async () => {
      try {
        const root = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`;
        const pods = list(await cluster.client.json<unknown>(root, { query: { labelSelector: selector }, signal }), "items");
        const newest = pods.map((each) => [text(each, "metadata", "creationTimestamp"), text(each, "metadata", "name")]).sort().at(-1)?.[1];
        if (!newest) return setLog("");
        const query = { container: "guest-console-log", tailLines: LOG_LINES };
        setLog(await cluster.client.text(`${root}/${encodeURIComponent(newest)}/log`, { query, signal }));
      } catch (error) {
        if (signal.aborted) return;
        setLog(error instanceof ApiError && error.code === 404 ? "" : explain(error));
      }
    })();
    return () => abort.abort();
  }, [namespace, name, turn]);
  return (
    <>
      <Command line={kubectl(namespace, "logs", "-l", selector, "-c", "guest-console-log")} />
      <div class="buttons">
        <button type="button" onClick={() => setTurn(turn + 1)}>
          Read again
        </button>
      </div>
      {log ? (
        <pre class="log" tabIndex={0} aria-label={`Console log of ${name}`}>
          {withoutControls(log)}
        </pre>
      ) : (
        <Empty title={log === undefined ? "One moment …" : "The guest has written nothing to its console"} />
      )}
    </>
  );
}

/** Return a console's text without escape sequences and control characters, which are a terminal's. */
export function withoutControls(log: string): string {
  // oxlint-disable-next-line no-control-regex
  return log.replace(/\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g, "").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "");
}

