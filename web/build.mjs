// Builds the dashboard into a directory (`dist` beside this file if none is given): the page, its files with a hash of
// their content in their names and a compressed copy of each, and `files.in`, the table of them for the server. Fails
// if the page is larger than it may be.
import { build } from "esbuild";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { constants, gzipSync } from "node:zlib";

/// Bytes, compressed, that the first page loads, and all of them together.
const FIRST_MAX = 60 * 1024;
const ALL_MAX = 110 * 1024;

const home = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? join(home, "dist"));

/// What the charts use none of, and the bundler cannot see that: it hangs on the class.
const UNUSED = ["uPlot.join = join;", "(paths.stepped = stepped);", "(paths.bars    = bars);", "(paths.spline  = monotoneCubic);"];
const withoutUnused = {
    name: "without-unused",
    setup({ onLoad }) {
        onLoad({ filter: /uPlot\.esm\.js$/ }, async ({ path }) => {
            let contents = await readFile(path, "utf8");
            for (const line of UNUSED) {
                if (!contents.includes(line)) throw new Error(`${path} has no line ${line}`);
                contents = contents.replace(line, "");
            }
            return { contents, loader: "js" };
        });
    },
};

await rm(out, { recursive: true, force: true });
await mkdir(join(out, "f"), { recursive: true });
const result = await build({
    absWorkingDir: home,
    entryPoints: { app: "src/main.tsx", style: "src/style.css" },
    outdir: join(out, "f"),
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    assetNames: "[name]-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    target: ["es2022"],
    minify: true,
    plugins: [withoutUnused],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    charset: "utf8",
    metafile: true,
    logLevel: "warning",
});

const outputs = Object.entries(result.metafile.outputs);
const nameOf = (entry) => basename(outputs.find(([, output]) => output.entryPoint === entry)[0]);
const [app, style] = ["src/main.tsx", "src/style.css"].map(nameOf);

/// The files that a file needs before it runs.
function needs(name, found = new Set()) {
    if (found.has(name)) return found;
    found.add(name);
    const [, output] = outputs.find(([path]) => basename(path) === name);
    for (const { path, kind } of output.imports) {
        if (kind === "import-statement") needs(basename(path), found);
    }
    return found;
}

const KINDS = { ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml" };
await writeFile(join(out, "f", "icon.svg"), await readFile(join(home, "src/icon.svg")));
const names = (await readdir(join(out, "f"))).sort();
const rows = [];
const sizes = new Map();
for (const name of names) {
    const plain = await readFile(join(out, "f", name));
    const gzip = gzipSync(plain, { level: constants.Z_BEST_COMPRESSION });
    // Which system has compressed it.
    gzip[9] = 255;
    await writeFile(join(out, "f", `${name}.gz`), gzip);
    sizes.set(name, gzip.length);
    const kind = KINDS[name.slice(name.lastIndexOf("."))];
    const bytes = (suffix) => `include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/web/dist/f/${name}${suffix}"))`;
    rows.push(`    File { name: "${name}", kind: "${kind}", plain: ${bytes("")}, gzip: ${bytes(".gz")} },\n`);
}
await writeFile(join(out, "files.in"), `&[\n${rows.join("")}]\n`);

const first = new Set([...needs(app), style]);
const preloads = [...first].filter((name) => name !== app && name !== style).sort();
const page = (await readFile(join(home, "src/index.html"), "utf8"))
    .replace("{{app}}", app)
    .replace("{{style}}", style)
    .replace("{{preloads}}", preloads.map((name) => `<link rel="modulepreload" href="f/${name}">\n`).join(""));
await writeFile(join(out, "index.html"), page);

const sum = (names) => [...names].reduce((bytes, name) => bytes + sizes.get(name), 0);
// What the first page needs beside the shell: the largest of the pages is the worst case.
const pages = outputs.filter(([, output]) => output.entryPoint?.startsWith("src/pages/"));
const withPage = pages.map(([path]) => [basename(path), sum(new Set([...first, ...needs(basename(path))]))]);
const [largest, firstBytes] = withPage.sort((one, other) => other[1] - one[1])[0] ?? ["none", sum(first)];
const allBytes = sum(sizes.keys()) + gzipSync(page).length;
console.log(`shell ${sum(first)} bytes, with its largest page (${largest}) ${firstBytes}, in all ${allBytes} (compressed)`);
if (firstBytes > FIRST_MAX || allBytes > ALL_MAX) {
    console.error(`too large: at most ${FIRST_MAX} and ${ALL_MAX} bytes`);
    process.exit(1);
}
