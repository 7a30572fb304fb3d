/** The frame around the views: navigation, namespace, connection, keys, dialogs and messages. */

import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { AppContext, type App } from "./app-context";
import { ApiError, explain } from "./api/client";
import { errorOf, forbiddenKinds, has, phaseOf, type Cluster, type World } from "./api/cluster";
import { KINDS } from "./api/kinds";
import type { KubeObject } from "./api/objects";
import { Command } from "./parts/basics";
import { Dialog } from "./parts/dialog";
import { Toasts, type Toast } from "./parts/toasts";
import { fleetOf, NO_FLEET } from "./model/fleet";
import type { Action } from "./model/actions";
import { linkTo } from "./model/activity";
import { href, routeOf, type Route, type View } from "./model/routes";
import { ActivityView } from "./views/activity";
import { CreateView } from "./views/create";
import { FleetView } from "./views/fleet";
import { Help } from "./views/help";
import { ImagesView } from "./views/images";
import { MachineView } from "./views/machine";
import { MachinesView } from "./views/machines";
import { NodesView } from "./views/nodes";
import { SetView } from "./views/set";

const NAVIGATION: [View, string, string][] = [
  ["fleet", "Fleet", "f"],
  ["machines", "Machines", "m"],
  ["activity", "Activity", "a"],
  ["nodes", "Nodes", "n"],
  ["images", "Images", "i"],
  ["create", "Create", "c"],
];
/** Verbs of machines, which write no fields of the objects that they name. */
const SUBRESOURCES = "/apis/subresources.kubevirt.io/";
const TOASTS_SHOWN = 3;
const TOAST_MS = 12_000;
const CHORD_MS = 1200;
const THEMES = ["auto", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];

export function Shell({ cluster, onSignOut }: { cluster: Cluster; onSignOut: (() => void) | undefined }) {
  const world = useWorld(cluster);
  const route = useRoute();
  const fleet = useRef(NO_FLEET);
  fleet.current = useMemo(
    () => fleetOf(world, fleet.current),
    [world.vms, world.vmis, world.sets, world.pools, world.warmPools],
  );
  const { toasts, notify, close, show } = useToasts();
  const [asked, setAsked] = useState<Action | undefined>(undefined);
  const [isHelp, setHelp] = useState(false);
  const [theme, setTheme] = useState<Theme>("auto");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  const choice = <ThemeChoice theme={theme} onPick={setTheme} />;

  const run = useCallback(
    async (action: Action) => {
      const { method, path, body, type } = action.request;
      try {
        const query = body === undefined || path.startsWith(SUBRESOURCES) ? {} : cluster.client.manager;
        const answer = await cluster.client.text(path, { method, body, type, query });
        show({ kind: "info", ...outcome(action, answer), command: action.command, undo: action.undo });
      } catch (error) {
        if (error instanceof ApiError && error.code === 403) cluster.askRights(action.namespace);
        show({ kind: "error", message: `${action.label}: ${explain(error)}`, command: action.command });
      }
    },
    [cluster],
  );
  const perform = useCallback((action: Action) => (action.confirm ? setAsked(action) : void run(action)), [run]);
  const app: App = { cluster, world, fleet: fleet.current, perform, notify };
  useKeys(() => setHelp(true));
  return (
    <AppContext.Provider value={app}>
      <div class="shell">
        <a class="skip" href="#main" onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}>
          Skip to content
        </a>
        <Navigation view={route.view} world={world} cluster={cluster} onHelp={() => setHelp(true)} onSignOut={onSignOut} theme={choice} />
        <main id="main" tabIndex={-1}>
          <Connection world={world} />
          <ViewOf key={route.view} route={route} />
        </main>
      </div>
      {asked?.confirm && (
        <Confirm action={asked} onClose={() => setAsked(undefined)} onYes={() => {
          setAsked(undefined);
          void run(asked);
        }} />
      )}
      {isHelp && <Help theme={choice} onClose={() => setHelp(false)} />}
      <Toasts toasts={toasts} onClose={close} onUndo={(toast) => {
        close(toast.id);
        if (toast.undo) void run(toast.undo);
      }} />
    </AppContext.Provider>
  );
}

/** Return the message of an action that is done, with the name of what it has created. */
function outcome(action: Action, answer: string): { message: string; link?: string } {
  if (action.request.method !== "POST") return { message: action.done };
  const { kind = "", metadata } = JSON.parse(answer) as KubeObject;
  return { message: `${action.done}: ${metadata.name}`, link: linkTo(kind, metadata.namespace ?? "", metadata.name) };
}

function ViewOf({ route }: { route: Route }): ComponentChildren {
  const { view, parts } = route;
  switch (view) {
    case "fleet":
      return <FleetView />;
    case "machines":
      return <MachinesView />;
    case "machine":
      return <MachineView key={parts.slice(0, 2).join("/")} parts={parts} />;
    case "set":
      return <SetView key={parts.join("/")} parts={parts} />;
    case "create":
      return <CreateView />;
    case "activity":
      return <ActivityView />;
    case "nodes":
      return <NodesView />;
    case "images":
      return <ImagesView />;
  }
}

function Navigation(props: { view: View; world: World; cluster: Cluster; onHelp: () => void; onSignOut: (() => void) | undefined; theme: ComponentChildren }) {
  const { view, world, cluster, onHelp, onSignOut, theme } = props;
  const phase = phaseOf(world);
  const here: View = view === "set" ? "fleet" : view === "machine" ? "machines" : view;
  return (
    <nav class="navigation" aria-label="Views">
      <a class="brand" href={href("fleet")}>
        corral
      </a>
      <NamespaceChoice world={world} cluster={cluster} />
      <ul>
        {NAVIGATION.map(([each, title, key]) => (
          <li key={each}>
            <a href={href(each)} aria-current={here === each ? "page" : undefined} aria-keyshortcuts={each === "create" ? "c" : `g ${key}`}>
              {title}
            </a>
          </li>
        ))}
      </ul>
      <div class="foot">
        <p class={`connection ${phase}`} role="status">
          <span class="dot" aria-hidden="true" /> {CONNECTION[phase]}
        </p>
        {world.user && <p class="user" title={world.user}>{world.user}</p>}
        {world.serverVersion && <p class="user" title="Version of the server">{world.serverVersion}</p>}
        {theme}
        <button type="button" class="quiet" aria-keyshortcuts="?" onClick={onHelp}>
          Help <kbd>?</kbd>
        </button>
        {onSignOut && (
          <button type="button" class="quiet" onClick={onSignOut}>
            Sign out
          </button>
        )}
      </div>
    </nav>
  );
}

const CONNECTION = { loading: "connecting", live: "live", polling: "every 3 s", down: "no answer" } as const;

/** A field where the user may not list namespaces, else a choice. */
function NamespaceChoice({ world, cluster }: { world: World; cluster: Cluster }) {
  const change = (event: { currentTarget: { value: string } }) => cluster.showNamespace(event.currentTarget.value.trim());
  return (
    <label class="namespace">
      <span class="hidden">Namespace</span>
      {world.namespaces.length > 0 ? (
        <select value={world.namespace} onChange={change}>
          <option value="">All namespaces</option>
          {world.namespaces.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      ) : (
        <input value={world.namespace} placeholder="Namespace (all)" onChange={change} />
      )}
    </label>
  );
}

/** Dark, light, or as the system has it; for this tab alone, since the page stores nothing. */
function ThemeChoice({ theme, onPick }: { theme: Theme; onPick: (theme: Theme) => void }) {
  return (
    <div class="choices" role="group" aria-label="Theme">
      {THEMES.map((each) => (
        <button key={each} type="button" class="chip" aria-pressed={theme === each} onClick={() => onPick(each)}>
          {each}
        </button>
      ))}
    </div>
  );
}

function Connection({ world }: { world: World }) {
  const error = phaseOf(world) === "down" ? errorOf(world) : "";
  const forbidden = forbiddenKinds(world).filter((each) => each !== "nodes");
  return (
    <>
      {error && (
        <p class="notice error" role="alert">
          {error.replace(/\.$/, "")}. What is shown is the last that was known.
        </p>
      )}
      {!has(world, "vmis") && (
        <div class="notice" role="status">
          <p>
            This Kubernetes has no kinds of virtual machines. An administrator of it installs corral's, after which this page has to be
            loaded again:
          </p>
          <Command line="corral install --print | kubectl apply -f -" />
        </div>
      )}
      {forbidden.includes("vmis") && (
        <p class="notice" role="status">
          Your role does not permit to list machines {world.namespace ? `in ${world.namespace}` : "in all namespaces: name one at the top"}.
        </p>
      )}
      {forbidden.length > 0 && !forbidden.includes("vmis") && (
        <p class="notice" role="status">
          Not shown, since your role does not permit to list them: {forbidden.map((each) => KINDS[each].titles).join(", ")}.
        </p>
      )}
    </>
  );
}

function Confirm({ action, onClose, onYes }: { action: Action; onClose: () => void; onYes: () => void }) {
  const goes = action.confirm?.goes ?? [];
  return (
    <Dialog title={action.confirm?.title ?? action.label} onClose={onClose}>
      <p>{action.confirm?.warning}</p>
      {goes.length > 0 && (
        <ul class="goes" tabIndex={0} aria-label="Machines that go">
          {goes.map((each) => (
            <li key={each}>{each}</li>
          ))}
        </ul>
      )}
      <Command line={action.command} />
      <div class="buttons">
        <button type="button" class={action.id === "delete" ? "danger primary" : "primary"} onClick={onYes}>
          {action.label}
        </button>
        <button type="button" autofocus onClick={onClose}>
          Cancel
        </button>
      </div>
    </Dialog>
  );
}

function useWorld(cluster: Cluster): World {
  const [world, setWorld] = useState(cluster.world);
  useEffect(() => {
    setWorld(cluster.world);
    return cluster.subscribe(() => setWorld(cluster.world));
  }, [cluster]);
  return world;
}

function useRoute(): Route {
  const [route, setRoute] = useState(() => routeOf(location.hash));
  useEffect(() => {
    const read = () => {
      setRoute((before) => {
        const now = routeOf(location.hash);
        if (now.view !== before.view || now.parts[1] !== before.parts[1]) window.scrollTo(0, 0);
        return now;
      });
    };
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  useEffect(() => {
    document.title = `${route.parts[1] ?? NAVIGATION.find(([each]) => each === route.view)?.[1] ?? ""} · corral`;
  }, [route]);
  return route;
}

function useToasts() {
  const [toasts, setToasts] = useState<Toast[]>([]);
  const next = useRef(0);
  const close = useCallback((id: number) => setToasts((all) => all.filter((each) => each.id !== id)), []);
  const show = useCallback((toast: Omit<Toast, "id">) => {
    next.current += 1;
    const id = next.current;
    setToasts((all) => [...all, { ...toast, id }].slice(-TOASTS_SHOWN));
    if (toast.kind === "info") setTimeout(() => close(id), TOAST_MS);
  }, []);
  const notify = useCallback((message: string, kind: "info" | "error" = "info") => show({ kind, message }), []);
  return { toasts, notify, close, show };
}

function isField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.closest("input, textarea, select, .console, .screen") !== null || target.isContentEditable);
}

/** The keys of the page; none of them while the user types, or while a dialog is open. */
function useKeys(onHelp: () => void): void {
  useEffect(() => {
    let chordUntil = 0;
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (isField(event.target)) {
        if (event.key === "Escape" && event.target instanceof HTMLInputElement) event.target.blur();
        return;
      }
      const view = NAVIGATION.find(([, , key]) => key === event.key)?.[0];
      if (event.timeStamp < chordUntil && view) location.hash = href(view);
      else if (event.key === "c") location.hash = href("create");
      else if (event.key === "?") onHelp();
      else if (event.key === "/") focusSearch();
      else {
        chordUntil = event.key === "g" ? event.timeStamp + CHORD_MS : 0;
        return;
      }
      chordUntil = 0;
      event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

/** Go to the view's filter; views without one lead to the list of machines. */
function focusSearch(): void {
  const field = document.querySelector<HTMLInputElement>("input.search");
  if (field) return field.focus();
  location.hash = href("machines");
  // The list is drawn after the change of the address.
  addEventListener("hashchange", () => requestAnimationFrame(() => document.querySelector<HTMLInputElement>("input.search")?.focus()), { once: true });
}
