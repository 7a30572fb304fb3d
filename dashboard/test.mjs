// Runs src/**/*.test.ts with node's own test runner; esbuild takes the types out first.
import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const source = path.join(here, "src");
const tests = (await readdir(source, { recursive: true })).filter((each) => /\.test\.tsx?$/.test(each));
if (!tests.length) process.exit(0);
const built = await mkdtemp(path.join(here, "node_modules/.tests-"));
try {
  await esbuild.build({
    entryPoints: tests.map((each) => path.join(source, each)),
    outdir: built,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    packages: "external",
    platform: "node",
    format: "esm",
    sourcemap: "inline",
    logLevel: "warning",
  });
  const files = (await readdir(built, { recursive: true })).filter((each) => each.endsWith(".mjs"));
  const run = spawnSync(
    process.execPath,
    ["--enable-source-maps", "--test", "--test-reporter=dot", ...files.map((each) => path.join(built, each))],
    { stdio: "inherit" },
  );
  process.exitCode = run.status ?? 1;
} finally {
  await rm(built, { recursive: true });
}
