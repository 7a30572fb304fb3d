// Sign-in by the one-use code of `corral dashboard`, for a token that this page alone holds.

/** Take the code out of the address and of the history. Returns "" if there is none. */
export function codeOfFragment(): string {
  const code = new URLSearchParams(location.hash.slice(1)).get("code") ?? "";
  if (code) history.replaceState(null, "", location.pathname + location.search);
  return code;
}

/** Exchange a one-use code for a bearer token. Throws an Error with the server's message. */
export async function exchange(code: string): Promise<string> {
  const response = await fetch("session", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ code }),
  });
  const answer = (await response.json()) as { token?: string; message?: string };
  if (!response.ok || !answer.token) throw new Error(answer.message ?? response.statusText);
  return answer.token;
}
