/** The YAML of an object that is there: read, and edited. */

import { useEffect, useState } from "preact/hooks";
import { useApp } from "../app-context";
import { explain } from "../api/client";
import { KINDS, type KindName } from "../api/kinds";
import type { KubeObject } from "../api/objects";
import { Command, Empty } from "../parts/basics";
import { YamlEditor } from "../parts/yaml-editor";
import { kubectl } from "../model/actions";

export function ObjectYaml({ kind, namespace, name }: { kind: KindName; namespace: string; name: string }) {
  const { cluster, world, notify } = useApp();
  const [value, setValue] = useState("");
  const [error, setError] = useState("");
  const [turn, setTurn] = useState(0);
  const path = cluster.path(kind, namespace, name);
  useEffect(() => {
    const abort = new AbortController();
    void (async () => {
      try {
        const [object, { stringify }] = await Promise.all([
          cluster.client.json<KubeObject>(path, { signal: abort.signal }),
          import("yaml"),
        ]);
        delete object.metadata.managedFields;
        setValue(stringify(object, { lineWidth: 0, aliasDuplicateObjects: false }));
        setError("");
      } catch (problem) {
        if (!abort.signal.aborted) setError(explain(problem));
      }
    })();
    return () => abort.abort();
  }, [path, turn]);
  if (error) return <Empty title={error} />;
  if (!value) return <Empty title="One moment …" />;
  const { plural, group, short } = KINDS[kind];
  return (
    <>
      <Command line={kubectl(namespace, "get", short, name, "-o", "yaml")} />
      <YamlEditor
        value={value}
        onInput={setValue}
        verb="Save"
        refusal={world.rights.of(namespace).refusal({ verb: "update", group, resource: plural, name })}
        target={() => ({ method: "PUT", path, command: () => kubectl(namespace, "edit", short, name) })}
        onDone={() => {
          notify(`Saved ${name}`);
          setTurn(turn + 1);
        }}
      />
    </>
  );
}
