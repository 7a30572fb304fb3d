/** Sign-in by the one-use code of `corral dashboard`, for a token that this page alone holds. */

import { ApiError, type Client } from "./api/client";

/** Take the code out of the address and of the history. Returns "" if there is none. */
export function codeOfFragment(): string {
  const code = new URLSearchParams(location.hash.slice(1)).get("code") ?? "";
  if (code) history.replaceState(null, "", location.pathname + location.search);
  return code;
}

/** Exchange a one-use code for a bearer token. Raises ApiError and Unreachable. */
export async function exchange(client: Client, code: string): Promise<string> {
  const answer = await client.json<{ token: string }>("session", { method: "POST", body: { code } });
  return answer.token;
}

/** End the session on the server; a token that is no session's stays as it is. */
export async function endSession(client: Client): Promise<void> {
  try {
    await client.text("session", { method: "DELETE" });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

/** Report whether the server lets the page in as it is: with its token, or behind a proxy with none. */
export async function isPermitted(client: Client): Promise<boolean> {
  const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
  try {
    await client.json("/apis/authentication.k8s.io/v1/selfsubjectreviews", { method: "POST", body: review });
    return true;
  } catch (error) {
    if (error instanceof ApiError && (error.code === 401 || error.code === 403)) return false;
    if (error instanceof ApiError) return true;
    throw error;
  }
}
