// Builds the page: node build.mjs [DIRECTORY].  Scripts and styles get names with the hash of their
// content, so that browsers may keep them for ever; index.html alone is asked for anew.
import { mkdir, readFile, readdir, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const page = path.resolve(process.argv[2] ?? path.join(here, "../src/corral/server/dashboard/page"));
const assets = path.join(page, "assets");

await mkdir(assets, { recursive: true });
const before = new Set(await readdir(assets));
const { metafile } = await esbuild.build({
  absWorkingDir: here,
  entryPoints: ["src/main.tsx", "src/styles.css"],
  outdir: assets,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  loader: { ".svg": "file", ".woff2": "file", ".ttf": "file" },
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "linked",
  metafile: true,
  logLevel: "warning",
});
const names = Object.keys(metafile.outputs).map((each) => path.basename(each));
let html = await readFile(path.join(here, "index.html"), "utf8");
for (const [output, { entryPoint, imports }] of Object.entries(metafile.outputs)) {
  if (!entryPoint || !html.includes(`"${entryPoint}"`)) continue;
  html = html.replace(`"${entryPoint}"`, `"assets/${path.basename(output)}"`);
  // What the entry imports is requested with it, not after it.
  const needed = imports.filter((each) => each.kind === "import-statement").map((each) => path.basename(each.path));
  const hints = needed.map((each) => `    <link rel="modulepreload" href="assets/${each}" />\n`);
  html = html.replace("  </head>", `${hints.join("")}  </head>`);
}
// The new index last, in one step: a server that reads meanwhile finds all of the old page or of the new.
await writeFile(path.join(page, "index.html.new"), html);
await rename(path.join(page, "index.html.new"), path.join(page, "index.html"));
for (const name of names) before.delete(name);
await Promise.all([...before].map((each) => rm(path.join(assets, each), { recursive: true })));
