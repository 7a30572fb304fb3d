/** Images: those on nodes, pulls that are under way, and data volumes with their progress. */

import { useApp } from "../app-context";
import { list, text, type KubeEvent, type KubeObject } from "../api/objects";
import { Age, Command, Empty, Lines, Title } from "../parts/basics";
import { bytes } from "../model/quantity";
import { lastTime } from "../model/timeline";
import { linkTo } from "../model/activity";

interface Image {
  name: string;
  size: number;
  nodes: string[];
}

/** Return the images that nodes have, each with the nodes that have it. */
export function imagesOf(nodes: readonly KubeObject[]): Image[] {
  const images = new Map<string, Image>();
  for (const node of nodes)
    for (const each of list(node, "status", "images")) {
      const names = list(each, "names").filter((name): name is string => typeof name === "string");
      const name = names.find((one) => !one.includes("@")) ?? names[0];
      if (!name) continue;
      const size = (each as { sizeBytes?: number }).sizeBytes ?? 0;
      const image = images.get(name) ?? { name, size, nodes: [] };
      image.nodes.push(node.metadata.name);
      images.set(name, image);
    }
  return [...images.values()].sort((one, other) => one.name.localeCompare(other.name));
}

/** Return the pulls that have begun and neither ended nor failed, by the events of their pods. */
export function pullsOf(events: readonly KubeEvent[]): KubeEvent[] {
  const last = new Map<string, KubeEvent>();
  for (const event of events) {
    if (event.involvedObject?.kind !== "Pod" || !["Pulling", "Pulled", "Failed", "BackOff", "Killing"].includes(event.reason ?? "")) continue;
    const key = event.involvedObject.uid ?? event.involvedObject.name ?? "";
    const known = last.get(key);
    if (!known || lastTime(event) >= lastTime(known)) last.set(key, event);
  }
  return [...last.values()].filter((each) => each.reason === "Pulling" || each.reason === "BackOff" || each.reason === "Failed");
}

export function ImagesView() {
  const { world } = useApp();
  const images = imagesOf(world.nodes.items);
  const pulls = pullsOf(world.events.items as readonly KubeEvent[]);
  return (
    <>
      <Title name="Images" />
      {pulls.length > 0 && <Pulls pulls={pulls} />}
      <DataVolumes volumes={world.dataVolumes.items} />
      <section aria-labelledby="on-nodes">
        <h2 id="on-nodes">On nodes</h2>
        {images.length === 0 ? (
          <Empty title="No images yet">
            <p>A node pulls an image when the first machine needs it. On a host of corral, to make one that needs no registry:</p>
            <Command line="corral image build-demo" />
          </Empty>
        ) : (
          <ul class="lines">
            {images.map((each) => (
              <li class="line" key={each.name}>
                <span class="grow mono">{each.name}</span>
                <span class="note">{bytes(each.size)}</span>
                <span class="note">{each.nodes.length === 1 ? each.nodes[0] : `${each.nodes.length} nodes`}</span>
              </li>
            ))}
          </ul>
        )}
      </section>
    </>
  );
}

function Pulls({ pulls }: { pulls: readonly KubeEvent[] }) {
  return (
    <Lines id="pulls" title="Pulls">
      {pulls.map((each) => {
        const { kind = "", namespace = "", name = "" } = each.involvedObject ?? {};
        return (
          <li class="line" key={each.metadata.uid}>
            <span class={`square ${each.reason === "Pulling" ? "starting" : "failed"}`} aria-hidden="true" />
            <span class="grow">{each.message}</span>
            <PullProgress message={each.message ?? ""} />
            <a href={linkTo(kind, namespace, name)}>{name}</a>
            <Age since={each.metadata.creationTimestamp} />
          </li>
        );
      })}
    </Lines>
  );
}

const PERCENT = /: (\d{1,3}) % of \d+ MiB$/;

/** How much of an image has been pulled, where its node reports that. */
function PullProgress({ message }: { message: string }) {
  const percent = PERCENT.exec(message)?.[1];
  return percent === undefined ? null : <progress max={100} value={Number(percent)} aria-label="Pulled" />;
}

function DataVolumes({ volumes }: { volumes: readonly KubeObject[] }) {
  if (volumes.length === 0) return null;
  return (
    <Lines id="volumes" title="Data volumes">
      {volumes.map((each) => {
        const progress = Number.parseFloat(text(each, "status", "progress"));
        const phase = text(each, "status", "phase") || "Pending";
        return (
          <li class="line" key={each.metadata.uid}>
            <strong>{each.metadata.name}</strong>
            <span class="note grow">{phase}</span>
            {Number.isFinite(progress) && <progress max={100} value={progress} aria-label={`Progress of ${each.metadata.name}`} />}
            {Number.isFinite(progress) && <span class="number">{progress.toFixed(0)} %</span>}
            <Age since={each.metadata.creationTimestamp} />
          </li>
        );
      })}
    </Lines>
  );
}
