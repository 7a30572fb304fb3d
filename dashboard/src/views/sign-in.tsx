/** Sign-in: by `corral dashboard`, by a pasted token, or by a kubeconfig that has one. */

import { useState } from "preact/hooks";
import { Command } from "../parts/basics";

interface Kubeconfig {
  "current-context"?: string;
  contexts?: { name?: string; context?: { user?: string } }[];
  users?: { name?: string; user?: { token?: string } }[];
}

/** Return the token of a kubeconfig's current user. Throws an Error that says what is missing. */
export function tokenOf(config: Kubeconfig | null): string {
  const current = config?.["current-context"];
  const user = config?.contexts?.find((each) => each.name === current)?.context?.user;
  const token = config?.users?.find((each) => each.name === user)?.user?.token;
  if (!user) throw new Error("current-context: the file names no user; choose one with kubectl config use-context");
  if (!token) throw new Error(`users[${user}].user.token: this user has none, as users with a client certificate; run corral dashboard, or make a token with kubectl create token`);
  return token;
}

export function SignIn({ error, onToken, isBusy }: { error: string; onToken: (token: string) => void; isBusy: boolean }) {
  const [token, setToken] = useState("");
  const [fault, setFault] = useState("");
  const read = async (file: File | undefined) => {
    if (!file) return;
    try {
      const { parse } = await import("yaml");
      onToken(tokenOf(parse(await file.text()) as Kubeconfig | null));
    } catch (problem) {
      setFault(problem instanceof Error ? problem.message : String(problem));
    }
  };
  const shown = fault || error;
  return (
    <main class="sign-in" onDragOver={(event) => event.preventDefault()} onDrop={(event) => {
      event.preventDefault();
      void read(event.dataTransfer?.files[0]);
    }}>
      <h1>corral</h1>
      {shown && (
        <p role="alert" class="fault">
          {shown}
        </p>
      )}
      <p>This page is opened, signed in as you, by:</p>
      <Command line="corral dashboard" />
      <form
        onSubmit={(event) => {
          event.preventDefault();
          setFault("");
          onToken(token.trim());
        }}
      >
        <label>
          Or paste a bearer token
          <input type="password" name="token" autocomplete="off" spellcheck={false} required value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        <button class="primary" disabled={isBusy}>
          Sign in
        </button>
      </form>
      <label>
        Or choose a kubeconfig with a token, or drop it here
        <input type="file" onChange={(event) => void read(event.currentTarget.files?.[0])} />
      </label>
      <p class="note">A token stays in this tab's memory only: it is gone when you close or reload the page.</p>
    </main>
  );
}
