// Measures the dashboard in a headless Chromium, for scripts/dashboard.sh. Lines of tab-separated names and numbers go to the output.
//
//   node bench/dashboard.mjs page '{"base": …, "browser": …, "judges": …, "queue": …, "seconds": …}'
//   node bench/dashboard.mjs viewers '{…, "sockets": …, "viewers": 10}'    says "ready", and then obeys lines: "open" and "close"
//
// `page` opens the pages over a large server and does what people do: scroll, filter, stay. It looks into the page by plain selectors
// and types by keys: what finds elements by their roles runs in the page, and would be its longest task. `viewers` records what one open
// overview sends to the server, and has that many connections send the same at the same pace: ten browsers would take the processor that
// the server is measured on.
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const [part, settings] = [process.argv[2], JSON.parse(process.argv[3])];
const require = createRequire(join(settings.judges, "package.json"));
const { chromium } = require("playwright-core");
const say = (name, value) => console.log(`${name}\t${value}`);
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const browser = await chromium.launch({
    executablePath: settings.browser,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"],
});
const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
context.setDefaultTimeout(120_000);

async function open(path) {
    const page = await context.newPage();
    await page.addInitScript(() => {
        window.longTasks = [];
        new PerformanceObserver((list) => {
            for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
        }).observe({ type: "longtask", buffered: true });
    });
    await page.goto(settings.base + path, { waitUntil: "load" });
    await appears(page, '[data-status="live"]');
    return page;
}

/** How long anything may take to appear. */
const DEADLINE_MS = 60_000;

/** Waits for an element, at the cost of one look a frame. */
const appears = (page, selector) =>
    page.evaluate(
        ([selector, deadlineMs]) =>
            new Promise((resolve, reject) => {
                const end = performance.now() + deadlineMs;
                const look = () => {
                    if (document.querySelector(selector)) resolve();
                    else if (performance.now() > end) reject(new Error(`${selector} does not appear`));
                    else requestAnimationFrame(look);
                };
                look();
            }),
        [selector, DEADLINE_MS],
    );

/** The longest task of the page since this was asked last; 0 if none took 50 ms. */
const longest = (page) => page.evaluate(() => Math.max(0, ...window.longTasks.splice(0)));

const painted = (page) =>
    page.evaluate(() => Object.fromEntries(performance.getEntriesByType("paint").map((entry) => [entry.name, entry.startTime])));

/** Scrolls down as fast as a wheel does, frame by frame. */
async function scroll(page) {
    for (let turn = 0; turn < 100; turn++) {
        await page.mouse.wheel(0, 1200);
        await page.evaluate(() => new Promise(requestAnimationFrame));
    }
}

/** Opens a page until it has a row of its table, so that its own content is there and not only what is around it. */
async function visit(name, path, table, act) {
    const page = await open(path);
    await appears(page, `[aria-label="${table}"] tbody td a`);
    const paints = await painted(page);
    say(`${name}.first_paint_ms`, paints["first-contentful-paint"].toFixed(0));
    say(`${name}.content_ms`, (await page.evaluate(() => performance.now())).toFixed(0));
    say(`${name}.load_task_ms`, (await longest(page)).toFixed(0));
    await page.mouse.move(640, 600);
    if (act) {
        await act(page);
        say(`${name}.act_task_ms`, (await longest(page)).toFixed(0));
    }
    await page.close();
}

async function heapMb(session) {
    await session.send("HeapProfiler.collectGarbage");
    const { metrics } = await session.send("Performance.getMetrics");
    return metrics.find((metric) => metric.name === "JSHeapUsedSize").value / 2 ** 20;
}

async function measurePages() {
    await visit("overview", "", "Busiest queues", undefined);
    await visit("queues", "queues", "Queues", async (page) => {
        await scroll(page);
        await page.evaluate(() => document.querySelector("main input[type=search]").focus());
        // One queue has this in its name: which comes first of several depends on what is in them.
        await page.keyboard.type("many-7777", { delay: 30 });
        await appears(page, 'tbody tr:first-child a[title="many-7777"]');
    });
    await visit("queue", `queues/${settings.queue}`, `Jobs of ${settings.queue}`, scroll);
    // Live updates for a while: what the page holds must not grow.
    const page = await open("");
    const session = await context.newCDPSession(page);
    await session.send("Performance.enable");
    await wait(15_000);
    await longest(page);
    const began = Date.now();
    let task = 0;
    // It keeps a bounded history: what it holds rises until that is full, and must not rise after.
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
        await wait(Math.max(0, began + part * settings.seconds * 1000 - Date.now()));
        // Before the collection that is asked for here, which takes long.
        task = Math.max(task, await longest(page));
        say(`live.heap_mb.${(part * settings.seconds).toFixed(0)}_s`, (await heapMb(session)).toFixed(2));
        await longest(page);
    }
    say("live.task_ms", task.toFixed(0));
}

/** How long a page asks for what it needs at first, and how long a recording of the rest is: pages ask each 1, 5 or 10 s. */
const [FIRST_MS, AGAIN_MS] = [3000, 20_000];

async function beViewers() {
    const sent = [];
    const page = await context.newPage();
    let address;
    page.on("websocket", (socket) => {
        address = socket.url();
        socket.on("framesent", ({ payload }) => sent.push([Date.now(), payload]));
    });
    const began = Date.now();
    await page.goto(settings.base, { waitUntil: "load" });
    await appears(page, '[data-status="live"]');
    await wait(began + FIRST_MS + AGAIN_MS - Date.now());
    await browser.close();
    const { WebSocket } = createRequire(join(settings.sockets, "package.json"))("ws");
    const open = async (viewer) => {
        const socket = new WebSocket(address);
        await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
        socket.on("message", () => {});
        // What it sent at first it sends once; what it asked for again and again comes again and again.
        const play = (all) => {
            for (const [at, payload] of all) setTimeout(() => socket.readyState === 1 && socket.send(payload), at - began + 20 * viewer);
        };
        play(sent);
        const again = setInterval(() => play(sent.filter(([at]) => at - began > FIRST_MS)), AGAIN_MS);
        const lost = () => {
            console.error("the server has closed the connection of a viewer");
            process.exit(1);
        };
        socket.once("close", lost);
        return () => {
            clearInterval(again);
            socket.off("close", lost);
            socket.terminate();
        };
    };
    let close = [];
    console.log("ready");
    for await (const order of createInterface({ input: process.stdin })) {
        for (const one of close) one();
        close = [];
        for (let viewer = 0; order === "open" && viewer < settings.viewers; viewer++) close.push(await open(viewer));
        console.log("done");
    }
    process.exit(0);
}

await (part === "page" ? measurePages() : beViewers());
await browser.close();
