/**
 * Builds dist: the script for Airflow's UI, the standalone page, the licences of what is bundled, and SOURCES, which
 * says of what it was built. The same sources make the same bytes. With --watch, again after every change.
 */

import { createHash } from "node:crypto";
import { cpSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { build, context } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const dist = join(here, "dist");

/** A style sheet is a text to be put in by the script. */
const style = {
  name: "style",
  setup: ({ onLoad }) =>
    onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const { outputFiles } = await build({ entryPoints: [path], minify: true, write: false, legalComments: "none" });
      return { contents: outputFiles[0].text, loader: "text", watchFiles: [path] };
    }),
};

/** Airflow's UI brings React along, under these names. */
const GLOBALS = { react: "React", "react/jsx-runtime": "ReactJSXRuntime" };
const borrowed = {
  name: "borrowed",
  setup: ({ onResolve, onLoad }) => {
    onResolve({ filter: /^react(\/jsx-runtime)?$/ }, ({ path }) => ({ path, namespace: "borrowed" }));
    onLoad({ filter: /.*/, namespace: "borrowed" }, ({ path }) => ({
      contents: `module.exports = globalThis.${GLOBALS[path]};`,
    }));
  },
};

const script = (entry, name, plugins) => ({
  absWorkingDir: here,
  entryPoints: [`src/${entry}`],
  outfile: `dist/${name}`,
  bundle: true,
  minify: true,
  metafile: true,
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "#page",
  charset: "utf8",
  legalComments: "none",
  define: { "process.env.NODE_ENV": '"production"' },
  plugins,
});

const scripts = [script("main.ts", "page.js", [style, borrowed]), script("standalone.tsx", "standalone.js", [style])];

/** What decides how dist comes out; tests/unit/test_page_build.py says the same. */
function sources() {
  const fixed = ["build.js", "index.html", "openapi.json", "package-lock.json", "package.json", "tsconfig.json"];
  const inside = (folder) =>
    readdirSync(join(here, folder), { withFileTypes: true }).flatMap((one) =>
      one.isDirectory() ? inside(`${folder}/${one.name}`) : [`${folder}/${one.name}`],
    );
  return [...fixed, ...inside("public"), ...inside("src")].sort();
}

function hash(names) {
  const sum = createHash("sha256");
  for (const name of names) sum.update(`${name}\0`).update(readFileSync(join(here, name))).update("\0");
  return sum.digest("hex");
}

/** The licences of the packages of which something ended up in a script. */
function licences(results) {
  const used = results.flatMap(({ metafile }) =>
    Object.values(metafile.outputs).flatMap(({ inputs }) => Object.entries(inputs).filter(([, { bytesInOutput }]) => bytesInOutput > 0)),
  );
  const names = new Set(used.map(([path]) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]).filter(Boolean));
  return [...names].sort().map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
    return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
}

if (process.argv.includes("--watch")) {
  for (const one of scripts) await (await context({ ...one, logLevel: "info" })).watch();
} else {
  rmSync(dist, { recursive: true, force: true });
  const results = await Promise.all(scripts.map((one) => build(one)));
  cpSync(join(here, "public"), dist, { recursive: true });
  cpSync(join(here, "index.html"), join(dist, "index.html"));
  writeFileSync(join(dist, "LICENSES.txt"), licences(results).join(`\n${"-".repeat(80)}\n\n`));
  writeFileSync(join(dist, "SOURCES"), `${hash(sources())}\n`);
}
