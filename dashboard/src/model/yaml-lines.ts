/** YAML of small objects of the API, for command lines. Pure; `yaml` is loaded with the editor only. */

/** Strings that mean the same with and without quotes. */
const PLAIN = /^[A-Za-z/][\w./-]*$/;
const WORDS_OF_YAML = /^(?:true|false|yes|no|on|off|null|y|n)$/i;

/** Return the YAML of a value of JSON; it ends with a newline. */
export function yamlOf(value: unknown): string {
  return `${linesOf(value).join("\n")}\n`;
}

function linesOf(value: unknown): string[] {
  if (Array.isArray(value) && value.length > 0) return value.flatMap((each) => linesOf(each).map((line, index) => (index ? `  ${line}` : `- ${line}`)));
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    const fields = Object.entries(value).filter(([, each]) => each !== undefined);
    if (fields.length > 0) return fields.flatMap(([key, each]) => fieldOf(key, each));
  }
  return [scalarOf(value)];
}

function fieldOf(key: string, value: unknown): string[] {
  const lines = linesOf(value);
  const name = scalarOf(key);
  const isEmpty = typeof value !== "object" || value === null || Object.keys(value).length === 0;
  return isEmpty ? [`${name}: ${lines[0]}`] : [`${name}:`, ...lines.map((line) => `  ${line}`)];
}

/** JSON is YAML: what needs quotes gets those of JSON. */
function scalarOf(value: unknown): string {
  const isPlain = typeof value === "string" && PLAIN.test(value) && !WORDS_OF_YAML.test(value);
  return isPlain ? value : JSON.stringify(value);
}
