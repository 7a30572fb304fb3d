import { render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Client, explain } from "./api/client";
import { Cluster } from "./api/cluster";
import { codeOfFragment, endSession, exchange, whoIsIn } from "./session";
import { Shell } from "./shell";
import { SignIn } from "./views/sign-in";

type Stage = "entering" | "signed out" | "signed in";

const EXPIRED = "Your session has ended. Run corral dashboard again, or paste a token.";

function Page() {
  const client = useMemo(() => new Client(), []);
  const cluster = useMemo(() => new Cluster(client), [client]);
  const [stage, setStage] = useState<Stage>("entering");
  const [error, setError] = useState("");
  const isIn = useRef(false);

  const leave = (message: string) => {
    isIn.current = false;
    cluster.stop();
    client.token = "";
    setError(message);
    setStage("signed out");
  };
  client.onUnauthorized = () => isIn.current && leave(EXPIRED);

  const enter = async (credential?: { token?: string; code?: string }) => {
    setError("");
    try {
      if (credential?.token) client.token = credential.token;
      const user = credential?.code ? await exchange(client, credential.code) : await whoIsIn(client);
      if (user === undefined) return leave(client.hasToken ? "The server does not accept this token." : "");
      isIn.current = true;
      client.user = user;
      cluster.start(user);
      setStage("signed in");
    } catch (problem) {
      leave(explain(problem));
    }
  };
  useEffect(() => {
    const code = codeOfFragment();
    void enter(code ? { code } : undefined);
  }, []);

  if (stage === "signed out") return <SignIn error={error} isBusy={false} onToken={(token) => void enter({ token })} />;
  if (stage === "entering") return <div class="entering" aria-busy="true" />;
  const signOut = async () => {
    await endSession(client);
    leave("You are signed out.");
  };
  return <Shell cluster={cluster} onSignOut={client.hasToken ? () => void signOut() : undefined} />;
}

const root = document.getElementById("app");
if (root) render(<Page />, root);
