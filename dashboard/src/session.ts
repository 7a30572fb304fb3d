/** Sign-in by the one-use code of `corral dashboard`, for a token that this page alone holds. */

import { ApiError, type Client } from "./api/client";
import { text } from "./api/objects";

/** Take the code out of the address and of the history. Returns "" if there is none. */
export function codeOfFragment(): string {
  const code = new URLSearchParams(location.hash.slice(1)).get("code") ?? "";
  if (code) history.replaceState(null, "", location.pathname + location.search);
  return code;
}

/** Sign in with a one-use code, for a bearer token, and return the user's name. Raises ApiError and Unreachable. */
export async function exchange(client: Client, code: string): Promise<string> {
  const answer = await client.json<{ token: string; user: unknown }>("session", { method: "POST", body: { code } });
  client.token = answer.token;
  return text(answer.user, "username");
}

/** End the session on the server; a token that is no session's stays as it is. */
export async function endSession(client: Client): Promise<void> {
  try {
    await client.text("session", { method: "DELETE" });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

/** Return the name of the user as whom the page is let in: with its token, or behind a proxy with none.
 *
 * Undefined where it is not let in; empty where the server does not say. Raises Unreachable.
 */
export async function whoIsIn(client: Client): Promise<string | undefined> {
  const body = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
  try {
    const review = await client.json<unknown>("/apis/authentication.k8s.io/v1/selfsubjectreviews", { method: "POST", body });
    return text(review, "status", "userInfo", "username");
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return error.code === 401 || error.code === 403 ? undefined : "";
  }
}
