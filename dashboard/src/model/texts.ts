/** Texts of others. Pure. */

const OVERRIDES = /[\u202a-\u202e\u2066-\u2069]/g;

/** Show the characters that change the direction of what follows them, which would let a text read as another. */
export function withoutOverrides(text: string | undefined): string | undefined {
  return text?.replace(OVERRIDES, "\ufffd");
}
