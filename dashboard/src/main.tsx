import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { codeOfFragment, exchange } from "./session";

interface Machine {
  metadata: { namespace: string; name: string; uid: string };
}

function App() {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState("");
  const [machines, setMachines] = useState<Machine[] | null>(null);
  useEffect(() => {
    const code = codeOfFragment();
    if (code) exchange(code).then(setToken, (error: Error) => setProblem(error.message));
  }, []);
  useEffect(() => {
    fetch("/apis/kubevirt.io/v1/virtualmachineinstances", {
      headers: token ? { authorization: `Bearer ${token}` } : {},
    })
      .then(async (response) => {
        const answer = (await response.json()) as { items?: Machine[]; message?: string };
        if (!response.ok) throw new Error(answer.message ?? response.statusText);
        setMachines(answer.items ?? []);
        setProblem("");
      })
      .catch((error: Error) => setProblem(error.message));
  }, [token]);
  return (
    <main>
      <h1>corral</h1>
      {problem && <p role="alert">{problem}</p>}
      {!machines && (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            setToken(String(new FormData(event.currentTarget).get("token")));
          }}
        >
          <label>
            Bearer token <input name="token" type="password" autocomplete="off" />
          </label>{" "}
          <button>Sign in</button>
        </form>
      )}
      {machines && (
        <ul>
          {machines.map(({ metadata }) => (
            <li key={metadata.uid}>
              {metadata.namespace}/{metadata.name}
            </li>
          ))}
        </ul>
      )}
    </main>
  );
}

render(<App />, document.getElementById("app")!);
