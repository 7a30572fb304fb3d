/** A form for a set, a pool or a machine, which shows the YAML that it makes. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { useApp } from "../app-context";
import { has } from "../api/cluster";
import { KIND_NAMES, KINDS, pathOf } from "../api/kinds";
import { text, type KubeObject } from "../api/objects";
import { Empty, Title } from "../parts/basics";
import { YamlEditor, type Target } from "../parts/yaml-editor";
import { createCommand } from "../model/actions";
import { linkTo } from "../model/activity";
import { blankForm, EXAMPLE_IMAGE, EXAMPLES, objectOf, type Form, type What } from "../model/create";
import type { Row } from "../model/fleet";
import { Rights } from "../model/rights";
import { href } from "../model/routes";
import { imagesOf } from "./images";

const OFFERED: What[] = ["set", "pool", "vm"];
const KIND_OF = { set: "sets", pool: "pools", vm: "vms" } as const;

export function CreateView() {
  const { world, fleet, cluster, notify } = useApp();
  const [form, setForm] = useState<Form>(() => blankForm(world.namespace, fleet.rows.find((each) => each.image && !each.image.startsWith("volume "))?.image));
  const [yaml, setYaml] = useState("");
  const [isEdited, setEdited] = useState(false);
  useEffect(() => {
    if (isEdited) return;
    const object = { ...objectOf(form), apiVersion: cluster.apiVersion(KIND_OF[form.what]) };
    import("yaml").then(
      ({ stringify }) => setYaml(stringify(object, { lineWidth: 0, aliasDuplicateObjects: false })),
      () => notify("The editor could not be loaded: reload the page.", "error"),
    );
  }, [form, isEdited]);
  const change = (part: Partial<Form>) => {
    setEdited(false);
    setForm({ ...form, ...part });
  };
  const { plural, group } = KINDS[KIND_OF[form.what]];
  // A name that is still being typed is no namespace: the server decides there.
  const isNamespace = [world.namespace || "default", ...world.namespaces].includes(form.namespace);
  const rights = isNamespace ? world.rights.of(form.namespace) : Rights.unknown();
  const offered = OFFERED.filter((each) => has(world, KIND_OF[each]));
  if (offered.length === 0) return <Empty title="There is nothing to create on this server" />;
  return (
    <>
      <Title name="Create" />
      <div class="create">
        <form class="form card" aria-label="What to create" onSubmit={(event) => event.preventDefault()}>
          <fieldset class="kinds">
            <legend>Kind</legend>
            {offered.map((each) => (
              <label key={each} class="kind">
                <input type="radio" name="what" checked={form.what === each} onChange={() => change({ what: each, name: form.name === EXAMPLES[form.what].name ? EXAMPLES[each].name : form.name })} />
                <span>
                  <strong>{EXAMPLES[each].title}</strong>
                  <small>{EXAMPLES[each].text}</small>
                </span>
              </label>
            ))}
          </fieldset>
          <Fields form={form} change={change} />
          {isEdited && <p class="note">The YAML was edited by hand. A change of the form makes it anew.</p>}
        </form>
        <section class="card" aria-label="YAML">
          <YamlEditor
            value={yaml}
            onInput={(value) => {
              setEdited(true);
              setYaml(value);
            }}
            verb="Create"
            refusal={rights.refusal({ verb: "create", group, resource: plural })}
            target={(object) => targetOf(object as KubeObject, form.namespace)}
            onDone={(object) => {
              notify(`Created ${object.metadata.name}`);
              location.hash = linkTo(object.kind ?? "", object.metadata.namespace ?? "", object.metadata.name) || href("fleet");
            }}
          />
        </section>
      </div>
    </>
  );
}

/** Return where an object is created; what is wrong with it, if that is not known. */
function targetOf(object: KubeObject, namespace: string): Target | string {
  const [group, version] = (object.apiVersion ?? "").includes("/") ? (object.apiVersion ?? "").split("/") : ["", object.apiVersion];
  const name = KIND_NAMES.find((each) => KINDS[each].kind === object.kind && KINDS[each].group === group);
  if (!name || !version) return `kind: this page creates sets, pools, machines and what belongs to them; for ${object.kind || "others"} use kubectl create.`;
  const path = pathOf(KINDS[name], version, text(object, "metadata", "namespace") || namespace);
  return { method: "POST", path, command: createCommand };
}

/** Return the images that sets use, that nodes have, and that of the examples. */
function knownImages(nodes: readonly KubeObject[], rows: readonly Row[]): string[] {
  const used = rows.map((each) => each.image).filter((each) => each && !each.startsWith("volume "));
  return [...new Set([...used, ...imagesOf(nodes).map((each) => each.name), EXAMPLE_IMAGE])];
}

function Fields({ form, change }: { form: Form; change: (part: Partial<Form>) => void }) {
  const { world, fleet } = useApp();
  const images = useMemo(() => knownImages(world.nodes.items, fleet.rows), [world.nodes, fleet.rows]);
  const number = (value: string, least: number) => Math.max(least, Number.parseInt(value, 10) || least);
  return (
    <>
      <div class="pair">
        <label>
          Name
          <input value={form.name} required pattern="[a-z0-9]([a-z0-9\-]*[a-z0-9])?" maxLength={63} autocomplete="off" onInput={(event) => change({ name: event.currentTarget.value })} />
        </label>
        <label>
          Namespace
          <input value={form.namespace} list="namespaces" autocomplete="off" onInput={(event) => change({ namespace: event.currentTarget.value })} />
          <datalist id="namespaces">
            {world.namespaces.map((each) => (
              <option key={each} value={each} />
            ))}
          </datalist>
        </label>
      </div>
      <label>
        Image (container disk)
        <input value={form.image} required list="images" autocomplete="off" class="mono" onInput={(event) => change({ image: event.currentTarget.value })} />
        <datalist id="images">
          {images.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      </label>
      <div class="pair">
        {form.what !== "vm" && (
          <label>
            Machines
            <input type="number" min={0} value={form.replicas} onInput={(event) => change({ replicas: number(event.currentTarget.value, 0) })} />
          </label>
        )}
        <label>
          Memory
          <input value={form.memory} pattern="[0-9.]+([KMGT]i?)?" autocomplete="off" onInput={(event) => change({ memory: event.currentTarget.value })} />
        </label>
        <label>
          Processors
          <input type="number" min={1} value={form.cores} onInput={(event) => change({ cores: number(event.currentTarget.value, 1) })} />
        </label>
      </div>
      <label class="check">
        <input type="checkbox" checked={form.sharesNetwork} onChange={(event) => change({ sharesNetwork: event.currentTarget.checked })} />
        Masquerade network: machines can migrate while they run
      </label>
      <label>
        Cloud-init user data (optional)
        <textarea rows={4} class="mono" spellcheck={false} value={form.userData} placeholder={"#cloud-config\n…"} onInput={(event) => change({ userData: event.currentTarget.value })} />
      </label>
    </>
  );
}
