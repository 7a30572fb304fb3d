/** One machine: state, usage, how it started, events, console, screen, log, YAML. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { useApp, useNow } from "../app-context";
import { has } from "../api/cluster";
import { ApiError, explain } from "../api/client";
import { condition, conditions, count, isTrue, list, text, type KubeEvent, type KubeObject } from "../api/objects";
import { ActionButton, Age, Command, Empty, Facts, StateText, Title } from "../parts/basics";
import { Console } from "../parts/console";
import { EventList } from "../parts/event-list";
import { MigrationList } from "../parts/migration-list";
import { ProblemList } from "../parts/problem-list";
import { Screen } from "../parts/screen";
import { Sparkline } from "../parts/sparkline";
import { Tabs } from "../parts/tabs";
import { checkpoint, deleteMachine, fork, kubectl, machineActions } from "../model/actions";
import { isAbout } from "../model/activity";
import { setKindOf } from "../model/fleet";
import { imageOf, type Machine } from "../model/machines";
import { bytes, parseQuantity, processors } from "../model/quantity";
import { problemsOfFork, problemsOfMachines } from "../model/problems";
import { href } from "../model/routes";
import { currentStage, timelineOf, type Stage } from "../model/timeline";
import { duration, span } from "../model/time";
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
      <Title name={machine.name} note={<Whereabouts machine={machine} />}>
        <MachineControls machine={machine} />
      </Title>
      <ProblemList problems={[...problemsOfMachines([machine], world.nodes.items), ...problemsOfFork(machine)]} />
      <MigrationList namespace={namespace} name={name} />
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

function Whereabouts({ machine }: { machine: Machine }) {
  return (
    <>
      <StateText state={machine.state} /> · {machine.namespace}
      <OwnerLink machine={machine} />
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
      {machineActions(machine, world.nodes.items).map((each) => (
        <ActionButton key={each.id} action={each} />
      ))}
      {has(world, "checkpoints") && machine.vmi && <ForkControls machine={machine} vmi={machine.vmi} />}
      <ActionButton action={deleteMachine(machine)} class="danger" />
    </div>
  );
}

/** A fork is made of a checkpoint: of the newest of this machine, or of one that is made first. */
function ForkControls({ machine, vmi }: { machine: Machine; vmi: KubeObject }) {
  const { world } = useApp();
  const mine = world.checkpoints.items.filter((each) => each.metadata.namespace === machine.namespace && text(each, "spec", "source", "name") === machine.name);
  const isMaking = mine.some((each) => !isTrue(each, "Ready") && !isTrue(each, "Failed"));
  const ready = mine.filter((each) => isTrue(each, "Ready")).sort((one, other) => (other.metadata.creationTimestamp ?? "").localeCompare(one.metadata.creationTimestamp ?? ""))[0];
  if (machine.state !== "ready" && machine.state !== "unready" && !ready) return null;
  // Both have their places always: a second click must not meet another button.
  return (
    <>
      <ActionButton action={{ ...checkpoint(machine), unavailable: isMaking ? "A checkpoint is being made." : undefined }} />
      <ActionButton action={{ ...fork(vmi, ready?.metadata.name ?? ""), unavailable: ready ? undefined : "A fork needs a checkpoint: make one first." }} />
    </>
  );
}

function Running({ machine, what, children }: { machine: Machine; what: "console" | "vnc"; children: () => preact.ComponentChildren }) {
  const { world } = useApp();
  const resource = `virtualmachineinstances/${what}`;
  const refusal = world.rights.of(machine.namespace).refusal({ verb: "get", group: "subresources.kubevirt.io", resource, name: machine.name });
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
  const now = useNow();
  const stages = useMemo(() => (machine.vmi ? timelineOf(machine.vmi, events) : []), [machine.vmi, events]);
  const current = machine.vmi && currentStage(machine.vmi, stages, now);
  const longest = Math.max(...stages.map((each) => each.took), current?.took ?? 0, 1);
  const total = stages.reduce((sum, each) => sum + each.took, 0);
  return (
    <section class="card" aria-labelledby="timeline">
      <h2 id="timeline">Start{stages.length > 0 && !current && <span class="note"> {duration(total)} in all</span>}</h2>
      {stages.length === 0 && !current && <p class="note">It does not run.</p>}
      <ol class="timeline">
        {stages.map((each) => (
          <li key={each.label} title={each.detail}>
            <span class="label">{each.label}</span>
            <progress max={longest} value={each.took} aria-hidden="true" tabIndex={-1} />
            <span class="number">{lengthOf(each)}</span>
          </li>
        ))}
        {current && (
          <li>
            <span class="label">
              <strong>{current.label}</strong>
            </span>
            <progress max={longest} value={current.took} aria-hidden="true" tabIndex={-1} />
            <span class="number">{span(current.took)} so far</span>
          </li>
        )}
      </ol>
      {stages.some((each) => each.took >= 1000 && !each.isPrecise) && <p class="note">~ is known to the second only.</p>}
    </section>
  );
}

/** Conditions have times in seconds: a stage that they end within one has taken less than it. */
function lengthOf(stage: Stage): string {
  if (stage.isPrecise) return duration(stage.took);
  return stage.took < 1000 ? "< 1 s" : `~${duration(stage.took)}`;
}

const LOG_LINES = "1000";
/** A guest may write without end: older text is left out. */
const LOG_CHARACTERS = 200_000;

/** The console log of a machine, as it is written. */
function ConsoleLog({ machine }: { machine: Machine }) {
  const { cluster } = useApp();
  const [log, setLog] = useState<string | undefined>(undefined);
  const [ending, setEnding] = useState("");
  const [turn, setTurn] = useState(0);
  const { namespace, name } = machine;
  const selector = `vm.kubevirt.io/name=${name}`;
  useEffect(() => {
    const abort = new AbortController();
    const { signal } = abort;
    let kept = "";
    let frame = 0;
    const draw = () => {
      frame = 0;
      setLog(kept);
    };
    const add = (text: string) => {
      kept = (kept + text).slice(-LOG_CHARACTERS);
      frame ||= requestAnimationFrame(draw);
    };
    setEnding("");
    void (async () => {
      try {
        const root = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`;
        const pods = list(await cluster.client.json<unknown>(root, { query: { labelSelector: selector }, signal }), "items");
        const newest = pods.map((each) => [text(each, "metadata", "creationTimestamp"), text(each, "metadata", "name")]).sort().at(-1)?.[1];
        setLog("");
        if (!newest) return setEnding("It has no pod.");
        const query = { container: "guest-console-log", tailLines: LOG_LINES, follow: "true" };
        await cluster.client.follow(`${root}/${encodeURIComponent(newest)}/log`, { query, signal }, add);
        setEnding("The log has ended.");
      } catch (error) {
        if (signal.aborted) return;
        setLog((before) => before ?? "");
        setEnding(error instanceof ApiError && error.code === 404 ? "It has no log." : explain(error));
      }
    })();
    return () => {
      abort.abort();
      cancelAnimationFrame(frame);
    };
  }, [namespace, name, turn]);
  return (
    <>
      <Command line={kubectl(namespace, "logs", "-f", "-l", selector, "-c", "guest-console-log")} />
      {ending && (
        <div class="buttons">
          <span class="note" role="status">
            {ending}
          </span>
          <button type="button" onClick={() => setTurn(turn + 1)}>
            Read again
          </button>
        </div>
      )}
      {log ? (
        <pre class="log" tabIndex={0} aria-label={`Console log of ${name}`}>
          {withoutControls(log)}
        </pre>
      ) : (
        <Empty title={log === undefined ? "One moment …" : "The guest has written nothing to its console yet"} />
      )}
    </>
  );
}

/** Return a console's text without escape sequences and control characters, which are a terminal's. */
export function withoutControls(log: string): string {
  // oxlint-disable-next-line no-control-regex
  return log.replace(/\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g, "").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "");
}

