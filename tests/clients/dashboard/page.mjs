// Drives the dashboard in a headless Chromium. What is to be done is the name of a part and its settings, as JSON; what the
// test has to do meanwhile it is asked for by a line ("ask <what>"), and answers with a line of JSON.
//
// With CORQ_TEST_SHOTS=<directory> a picture of each page is kept there, in light, dark, and at the size of a phone.
//
// Nothing here waits for a time, and everything fails on the first error, violation of the policy, or finding of axe.
import { createRequire } from "node:module";
import { mkdirSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { deepStrictEqual as equal, ok } from "node:assert";
import { join } from "node:path";
import { further } from "./further.mjs";
import { jobs } from "./live.mjs";

const [part, settings] = [process.argv[2], JSON.parse(process.argv[3])];
const require = createRequire(join(settings.judges, "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
/** Has the test do something, and waits for what it says. */
async function ask(what) {
    console.log(`ask ${what}`);
    const { value } = await lines.next();
    return JSON.parse(value);
}

const DEADLINE = 300_000;
const browser = await chromium.launch({
    executablePath: settings.browser,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"],
    timeout: DEADLINE,
});

/**
 * A tab that fails with the first thing that goes wrong in it. `expected` are errors of the network that belong to the part. `frames`
 * gets what its connection sends and hears.
 */
async function open(path = "", { scheme = "light", expected = [], size = { width: 1280, height: 900 }, context, frames } = {}) {
    const own = context ?? (await browser.newContext({ viewport: size, colorScheme: scheme, timezoneId: "Europe/Berlin" }));
    own.setDefaultTimeout(DEADLINE);
    const page = await own.newPage();
    page.wrong = [];
    page.on("pageerror", (error) => page.wrong.push(`error: ${error.stack}`));
    page.on("console", (message) => {
        const text = message.text();
        const isExpected = expected.some((one) => text.includes(one));
        if (["error", "warning"].includes(message.type()) && !isExpected) page.wrong.push(`console: ${text}`);
    });
    if (frames) {
        page.on("websocket", (socket) => {
            socket.on("framesent", ({ payload }) => frames.sent.push(JSON.parse(payload)));
            socket.on("framereceived", ({ payload }) => frames.heard.push(JSON.parse(payload)));
        });
    }
    await page.addInitScript(() => {
        document.addEventListener("securitypolicyviolation", (event) => {
            console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
        });
    });
    await page.goto(settings.base + path, { waitUntil: "load" });
    return page;
}

/** Waits for what only this program can see. */
async function reached(what, is) {
    const end = performance.now() + DEADLINE;
    while (!is()) {
        ok(performance.now() < end, what);
        await new Promise((resolve) => setTimeout(resolve, 20));
    }
}

const fine = (page) => equal(page.wrong, []);
const live = (page) => page.locator('[data-status="live"]').waitFor();
const shows = (page, text) => page.getByText(text).first().waitFor();

/** That axe finds nothing. It comes by the debugger, as the policy of the page lets nothing in. */
async function accessible(page) {
    await page.evaluate(`${axe}; undefined`);
    const found = await page.evaluate(async () => {
        const { violations } = await window.axe.run(document);
        return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(" ")).join(", ")}`);
    });
    equal(found, []);
}

/** Keeps a picture of a page for people to review. */
async function shot(page, path, look) {
    const home = process.env.CORQ_TEST_SHOTS;
    if (!home) return;
    mkdirSync(home, { recursive: true });
    const name = path.replace(/[^\w]+/g, "-") || "overview";
    await page.screenshot({ path: join(home, `${name}-${look}.png`), fullPage: true });
}

/** Answers the question that is open. */
async function confirm(page, action, { fields = {}, word } = {}) {
    const dialog = page.getByRole("dialog");
    for (const [name, value] of Object.entries(fields)) await dialog.locator(`[name=${name}]`).fill(value);
    if (word) {
        ok(await dialog.getByRole("button", { name: action }).isDisabled(), "it asks for the name first");
        await dialog.getByRole("textbox").fill(word);
    }
    await dialog.getByRole("button", { name: action }).click();
    await dialog.waitFor({ state: "detached" });
}

/**
 * A page of elsewhere does with the session of this browser what a page can do to others: it sends a command that it may not read the
 * answer of, a form, and opens a connection.
 */
async function intrude(page, origin, status) {
    await page.route(`${origin}/**`, (route) => route.fulfill({ contentType: "text/html", body: "<title>evil</title>" }));
    await page.goto(`${origin}/`);
    equal(await page.evaluate(() => location.origin), origin);
    const url = new URL("../queues/mail/pause", settings.base).href;
    const tried = await page.evaluate(
        async ([url, socket]) => {
            const sent = await fetch(url, { method: "POST", mode: "no-cors", credentials: "include" }).then(
                ({ type }) => type,
                () => "failed",
            );
            const own = new WebSocket(socket);
            const opened = await new Promise((resolve) => {
                own.onopen = () => resolve("open");
                own.onerror = () => resolve("failed");
            });
            own.close();
            return { sent, opened };
        },
        [url, new URL("ws", settings.base).href.replace("http", "ws")],
    );
    ok(["opaque", "failed"].includes(tried.sent), tried.sent);
    equal(tried.opened, "failed");
    const answered = page.waitForEvent("response", (answer) => answer.url() === url && answer.request().isNavigationRequest());
    // The answer comes before the page it becomes: who opens another one in between is interrupted by it.
    const landed = page.waitForURL(url);
    await page.evaluate((url) => {
        const form = Object.assign(document.createElement("form"), { method: "post", action: url });
        document.body.append(form);
        // Later, as this call has an answer only while its page is there.
        setTimeout(() => form.submit());
    }, url);
    equal((await answered).status(), status);
    await landed;
    equal(await ask("paused"), false);
}

const menu = async (page, item) => {
    await page.getByRole("button", { name: "Actions", exact: true }).click();
    await page.getByRole("menuitem", { name: item }).click();
};

const parts = {
    /** Every page in both colours, at the sizes of a desk and of a phone. */
    async pages() {
        const { waiting, dead, completed } = settings.jobs;
        for (const [path, text] of [
            ["", "Cores at work"],
            ["queues", "mail"],
            ["queues/mail", "Jobs"],
            ["queues/mail?state=failed&order=asc", "broken"],
            [`jobs/${waiting}`, "Why it does not run"],
            [`jobs/${dead}`, "Failed attempts"],
            [`jobs/${completed}`, "Result"],
            ["jobs/unknown", "There is no job"],
            ["help", "Good to know"],
            ["no/such/page", "There is no such page"],
        ]) {
            for (const scheme of ["light", "dark"]) {
                const page = await open(path, { scheme });
                await live(page);
                await shows(page, text);
                await accessible(page);
                await shot(page, path, scheme);
                equal(await page.locator("html").getAttribute("data-theme"), scheme);
                fine(page);
                await page.context().close();
            }
            const phone = await open(path, { size: { width: 390, height: 800 } });
            await phone.locator("h1").first().waitFor();
            await live(phone);
            await accessible(phone);
            await shot(phone, path, "phone");
            const wide = await phone.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
            ok(wide <= 0, `${path} is ${wide} too wide for a phone`);
            await phone.getByRole("button", { name: "Pages" }).click();
            await phone.getByRole("link", { name: "Help" }).click();
            await shows(phone, "Good to know");
            fine(phone);
            await phone.context().close();
        }
    },

    /** What is done to a queue and to jobs; the test looks whether the server has done it. */
    async actions() {
        const page = await open("queues/mail");
        await page.getByRole("button", { name: "Pause" }).click();
        await shows(page, "none is given to workers");
        await accessible(page);
        await confirm(page, "Pause mail");
        await page.locator(".tag", { hasText: "paused" }).waitFor();
        equal((await ask("paused")).paused, true);
        await page.getByRole("button", { name: "Resume" }).click();
        await page.getByRole("button", { name: "Pause" }).waitFor();
        equal((await ask("paused")).paused, false);

        await page.getByRole("button", { name: "Change rate" }).click();
        await confirm(page, "Set", { fields: { max: "7", duration: "60000" } });
        await shows(page, "7 per 1 min");
        await page.getByRole("button", { name: "Change concurrency" }).click();
        await confirm(page, "Set", { fields: { limit: "3" } });
        await shows(page, "3 at once");
        const { rateLimit, concurrencyLimit } = await ask("limits");
        equal([rateLimit, concurrencyLimit], [{ max: 7, duration: 60000 }, 3]);
        await page.getByRole("button", { name: "Change rate" }).click();
        await confirm(page, "Set", { fields: { max: "" } });
        await page.waitForFunction(() => !document.body.textContent.includes("7 per 1 min"));
        equal((await ask("limits")).rateLimit, null);

        // Who says no changes nothing.
        await menu(page, "Obliterate");
        await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
        await page.getByRole("dialog").waitFor({ state: "detached" });
        equal((await ask("counts")).delayed, 1);
        fine(page);

        const { delayed, dead, completed } = settings.jobs;
        const job = async (id) => {
            await page.goto(`${settings.base}jobs/${id}`);
            await live(page);
        };
        await job(delayed);
        await page.getByRole("button", { name: "Run now" }).click();
        await page.locator(".tag", { hasText: "waiting" }).waitFor();
        await menu(page, "Change priority");
        await confirm(page, "Set", { fields: { priority: "42" } });
        await page.locator("dd", { hasText: /^42$/ }).waitFor();
        await menu(page, "Delay");
        await confirm(page, "Delay 1 job", { fields: { delay: "3600" } });
        await page.locator(".tag", { hasText: "delayed" }).waitFor();
        equal(await ask(`state ${delayed}`), "delayed");
        await menu(page, "Cancel");
        await confirm(page, "Remove 1 job");
        await page.waitForURL("**/queues/mail");
        equal(await ask(`state ${delayed}`), "unknown");
        await job(dead);
        await page.getByRole("button", { name: "Retry" }).click();
        await page.locator(".tag", { hasText: "waiting" }).waitFor();
        equal(await ask(`state ${dead}`), "waiting");
        await menu(page, "Make it a dead letter");
        await confirm(page, "Move 1 job");
        await page.locator(".tag", { hasText: "failed" }).waitFor();
        await menu(page, "Remove");
        await confirm(page, "Remove 1 job");
        await page.waitForURL("**/queues/mail");
        equal(await ask(`state ${dead}`), "unknown");
        await job(completed);
        await page.getByRole("button", { name: "Run again" }).click();
        await confirm(page, "Run 1 job again");
        await page.locator(".tag", { hasText: "waiting" }).waitFor();
        equal(await ask(`state ${completed}`), "waiting");
        fine(page);

        await page.goto(`${settings.base}queues`);
        await page.getByRole("button", { name: "Pause mail" }).click();
        await confirm(page, "Pause mail");
        await page.getByRole("button", { name: "Resume mail" }).click();
        await page.getByRole("button", { name: "Pause mail" }).waitFor();
        fine(page);
    },

    /** What is done to all jobs of a state is counted first, then done as a task that the page shows. */
    async queue_tasks() {
        const page = await open("queues/mail");
        await live(page);
        const counts = async () => {
            const { waiting, delayed, failed, completed } = await ask("counts");
            return { waiting, delayed, failed, completed };
        };
        let now = { waiting: 2, delayed: 1, failed: 1, completed: 1 };
        equal(await counts(), now);
        const act = async (item, title, done, then, word) => {
            await menu(page, item);
            const dialog = page.getByRole("dialog");
            await dialog.getByText("A dry run checked").waitFor();
            equal(await counts(), now, "a dry run changes nothing");
            await confirm(page, title, word ? { word } : {});
            await page.locator('[data-task="done"]', { hasText: done }).first().waitFor();
            now = { ...now, ...then };
            equal(await counts(), now, item);
            // What is offered next are the jobs that there are now.
            for (const [state, label] of [["waiting", "Waiting"], ["delayed", "Delayed"], ["failed", "Dead letters"], ["completed", "Completed"]]) {
                const tile = page.getByRole("region", { name: "Jobs by state" }).locator("a", { hasText: label });
                await tile.locator(`[title="${now[state]}"]`).waitFor();
            }
        };
        await menu(page, "Remove 2 waiting jobs");
        await page.getByRole("dialog").getByText("A dry run checked").waitFor();
        await accessible(page);
        await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
        equal(await counts(), now);
        await act("Run 1 delayed job now", "Run 1 delayed job now", "1 made ready", { waiting: 3, delayed: 0 });
        await act("Retry 1 dead letter", "Retry 1 dead letter", "1 retried", { waiting: 4, failed: 0 });
        await act("Remove 1 completed job", "Remove 1 completed job", "1 removed", { completed: 0 }, "mail");
        await act("Remove 4 waiting jobs", "Remove 4 waiting jobs", "4 removed", { waiting: 0 }, "mail");
        await ask("bury");
        now = { ...now, failed: 2 };
        await act("Remove 2 dead letters", "Remove 2 dead letters", "2 removed", { failed: 0 }, "mail");
        await accessible(page);
        fine(page);
        // Of other queues nothing is shown there.
        const other = await open("queues/other");
        await live(other);
        equal(await other.getByText("removed").count(), 0);
        fine(other);
    },

    /** For each reason the page says why its job does not run. */
    async reasons() {
        for (const [code, id] of Object.entries(settings.jobs)) {
            const page = await open(`jobs/${id}`);
            await page.locator(`[data-code="${code}"]`).waitFor();
            fine(page);
            await page.context().close();
        }
    },

    /** A person who was told nothing goes from the first page to a job, and reads there why it does not run, and what ends that. */
    async causes() {
        for (const { queue, job, code, says, title } of settings.causes) {
            const page = await open();
            await live(page);
            await page.getByRole("navigation").getByRole("link", { name: "Queues" }).click();
            await page.getByRole("link", { name: queue, exact: true }).first().click();
            await page.getByRole("region", { name: /^Jobs/ }).locator(`a[href$="jobs/${job}"]`).first().click();
            await page.waitForURL(`**/jobs/${job}`);
            const card = page.locator(".explain");
            const reason = card.locator(`[data-code="${code}"]`);
            await reason.waitFor();
            const text = await reason.textContent();
            for (const one of says) ok(text.includes(one), `${job}: ${one} is not in ${text}`);
            await card.getByText(title).first().waitFor();
            await accessible(page);
            fine(page);
            await page.context().close();
        }
    },

    async payloads() {
        const page = await open(`jobs/${settings.job}`);
        for (const text of settings.shown) await page.locator(".scalar", { hasText: text }).first().waitFor();
        await page.getByRole("button", { name: "Text" }).click();
        const text = await page.locator(".payload pre").first().textContent();
        for (const part of settings.shown) ok(text.includes(part), `${part}: ${text}`);
        await page.getByRole("button", { name: "Text" }).click();
        await page.getByLabel("Find in the payload").fill("deep");
        await page.locator(".path", { hasText: "list.1.deep" }).waitFor();
        for (const place of [`jobs/${settings.job}`, "queues/mail"]) {
            await page.goto(settings.base + place);
            await live(page);
            await page.getByText("[redacted]").first().waitFor();
            const body = await page.evaluate(() => document.body.textContent);
            for (const secret of settings.hidden) ok(!body.includes(secret), `${secret} is seen at ${place}`);
        }
        // What a stranger has written stays a text.
        equal(await page.evaluate(() => window.stolen), undefined);
        fine(page);
    },

    /** Everything by keys. */
    async keys() {
        const page = await open();
        await live(page);
        await page.keyboard.press("Control+k");
        const field = page.locator(".palette input");
        await field.waitFor();
        await accessible(page);
        await field.pressSequentially("mai");
        await page.locator('[aria-selected="true"]', { hasText: "mail" }).waitFor();
        await page.keyboard.press("Enter");
        await page.waitForURL("**/queues/mail");
        await shows(page, "Jobs");
        await page.keyboard.press("g");
        await page.keyboard.press("q");
        await page.waitForURL("**/queues");
        await page.getByRole("link", { name: "mail", exact: true }).waitFor();
        await page.keyboard.press("/");
        equal(await page.evaluate(() => document.activeElement.tagName), "INPUT");
        await page.keyboard.type("ma");
        await page.waitForURL("**/queues?prefix=ma");
        const bills = page.getByRole("link", { name: "bills", exact: true });
        await bills.waitFor({ state: "detached" });
        // Escape empties a field of search, and the list follows a moment later: a link of the list before takes no key.
        await page.keyboard.press("Escape");
        await bills.waitFor();
        await page.getByRole("link", { name: "mail", exact: true }).focus();
        await page.keyboard.press("Enter");
        await page.waitForURL("**/queues/mail");
        await page.keyboard.press("?");
        await page.waitForURL("**/help");
        await page.keyboard.press("d");
        await page.locator('html[data-theme="dark"]').waitFor({ state: "attached" });
        await page.goBack();
        await page.waitForURL("**/queues/mail");
        await shows(page, "Jobs");
        await page.keyboard.press("Control+k");
        await field.pressSequentially("pause mail");
        await page.locator('[aria-selected="true"]', { hasText: "Pause mail" }).waitFor();
        await page.keyboard.press("Enter");
        await page.getByRole("dialog").getByRole("button", { name: "Pause mail" }).waitFor();
        await page.keyboard.press("Escape");
        await page.getByRole("dialog").waitFor({ state: "detached" });
        fine(page);
        // The choice outlives the page.
        await page.reload();
        await page.locator('html[data-theme="dark"]').waitFor({ state: "attached" });
        fine(page);
    },

    /** Sessions and roles. */
    async login() {
        // Of the pages of elsewhere: what the server refuses, and what the browser does by itself.
        const expected = ["401", "403", "WebSocket", "ERR_FAILED", "CORS policy"];
        const page = await open("queues/mail", { expected });
        const log_in = async (own, token) => {
            await own.getByLabel("Token").fill(token);
            await own.getByRole("button", { name: "Log in" }).click();
        };
        await page.getByLabel("Token").waitFor();
        await accessible(page);
        await log_in(page, "guess");
        await page.getByRole("alert").filter({ hasText: "Invalid token" }).waitFor();
        await accessible(page);
        await log_in(page, settings.tokens.admin);
        await page.getByRole("button", { name: "Pause" }).waitFor();
        equal(new URL(page.url()).pathname, "/ui/queues/mail");
        await page.reload();
        await page.getByRole("button", { name: "Pause" }).waitFor();
        // The browser sends the cookie to no other site, and the server heeds it from no other origin, such as that of a neighbouring port.
        await intrude(page, "http://evil.test", 401);
        await intrude(page, settings.neighbour, 403);
        await page.goto(`${settings.base}queues/mail`);
        await page.getByRole("button", { name: "Pause" }).waitFor();
        // A script could not read the cookie, and the page keeps the token nowhere.
        equal(await page.evaluate(() => [document.cookie, JSON.stringify({ ...localStorage, ...sessionStorage })]), ["", "{}"]);
        await page.getByRole("button", { name: "Log out" }).click();
        await page.getByLabel("Token").waitFor();
        await page.reload();
        await page.getByLabel("Token").waitFor();
        fine(page);
        await page.context().close();

        const reader = await open("queues/mail", { expected });
        await log_in(reader, settings.tokens.read);
        await shows(reader, "Role read");
        await shows(reader, "Rules");
        equal(await reader.getByRole("button", { name: "Pause" }).count(), 0);
        equal(await reader.getByRole("button", { name: "Actions" }).count(), 0);
        fine(reader);
        await reader.context().close();

        const clerk = await open("", { expected });
        await log_in(clerk, settings.tokens.clerk);
        await shows(clerk, "limited to the queues");
        // The busiest of its own queues come by samples.
        await clerk.getByRole("region", { name: "Busiest queues" }).getByRole("link", { name: "mail", exact: true }).waitFor();
        await clerk.getByRole("link", { name: "All queues" }).click();
        await clerk.getByRole("link", { name: "mail", exact: true }).waitFor();
        equal(await clerk.getByRole("link", { name: "other", exact: true }).count(), 0);
        await clerk.getByRole("link", { name: "mail", exact: true }).click();
        await clerk.getByRole("button", { name: "Pause" }).waitFor();
        await clerk.goto(`${settings.base}jobs/${settings.job}`);
        await shows(clerk, "Payload");
        await shows(clerk, "Why it does not run");
        await clerk.goto(`${settings.base}flows/${settings.flow}`);
        await shows(clerk, "3 jobs");
        await clerk.locator("g.job.hidden", { hasText: "Job of another queue" }).first().waitFor();
        equal(await clerk.locator("g.job.hidden").count(), 1);
        ok(!(await clerk.content()).includes("secret-child"), "a job of another queue is named");
        // They come now, as silent ones go after a while.
        await ask("workers");
        await clerk.goto(`${settings.base}workers`);
        await shows(clerk, "mailer");
        ok(!(await clerk.content()).includes("stranger"), "a worker of another queue is named");
        fine(clerk);
        await clerk.context().close();

        const worker = await open("", { expected });
        await log_in(worker, settings.tokens.work);
        await shows(worker, "Not for this token");
        fine(worker);
    },

    /** The server goes and comes back under an open page. */
    async restart() {
        const page = await open("queues/mail", { expected: ["WebSocket", "ERR_", "503", "Failed to load"] });
        await live(page);
        await shows(page, "Jobs");
        await ask("kill");
        await page.locator('[data-status="disconnected"]').waitFor();
        await shows(page, "The page shows the last known state");
        await accessible(page);
        await ask("start");
        // It may have come back by itself.
        await page.getByRole("button", { name: "Try now" }).click({ timeout: 1000 }).catch(() => undefined);
        await live(page);
        await page.locator(".away").waitFor({ state: "detached" });
        const { id } = await ask("push");
        await page.locator(`a[href="jobs/${id}"]`).waitFor();
        fine(page);
    },

    /** A page that may only look offers nothing else, and names its environment in a colour that leaves the name readable. */
    async read_only() {
        const { waiting, delayed, dead, completed } = settings.jobs;
        const actions = [/^Retry/, /^Remove/, /^New /, /^Pause/, /^Resume/, /^Actions/, /^Release/, /^Change/, /^Run/, /^Cancel/];
        for (const scheme of ["light", "dark"]) {
            for (const [path, text] of [
                ["", "Busiest queues"],
                ["queues", "mail"],
                ["queues/mail", "Rules"],
                [`jobs/${waiting}`, "Payload"],
                [`jobs/${delayed}`, "Payload"],
                [`jobs/${dead}`, "Failed attempts"],
                [`jobs/${completed}`, "Result"],
                ["dead?queue=mail", "broken pipe"],
                ["schedules", "nightly"],
                ["schedules/nightly", "The schedule"],
                ["groups?queue=mail", /^g$/],
                ["webhooks", "No webhook"],
                ["server", "Longest turns"],
            ]) {
                const page = await open(path, { scheme });
                await live(page);
                await shows(page, text);
                await shows(page, "read only");
                await page.locator(".nav .label", { hasText: "prod" }).waitFor();
                for (const name of actions) {
                    equal(await page.locator("main").getByRole("button", { name }).count(), 0, `${path} offers ${name}`);
                }
                await accessible(page);
                fine(page);
                await page.context().close();
            }
        }
    },

    /** What needs a look stands above the figures, also if it comes under the open page. */
    async alerts() {
        const page = await open();
        await live(page);
        const alerts = page.getByRole("list", { name: "What needs a look" });
        const alert = alerts.locator("li", { hasText: "No worker takes jobs from" });
        await alert.waitFor();
        equal(await alert.getByRole("link").first().textContent(), settings.oldest);
        const figures = page.getByRole("region", { name: "Figures of the server" });
        const tile = (name) => figures.locator(".tile", { hasText: name });
        await tile("Oldest waiting job").getByRole("link", { name: settings.oldest }).waitFor();
        await tile("Dead letters").getByText("0", { exact: true }).waitFor();
        equal(await alerts.locator("li", { hasText: "dead letter" }).count(), 0);
        await ask("bury");
        const dead = alerts.locator("li", { hasText: "1 new dead letter in the last" });
        await dead.waitFor();
        await accessible(page);
        await dead.getByRole("link", { name: "show them" }).click();
        await page.waitForURL("**/dead");
        fine(page);
    },

    /** A server that stands still, and a page that is not seen. */
    async pauses() {
        const hide = (page, hidden) =>
            page.evaluate((hidden) => {
                Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
                document.dispatchEvent(new Event("visibilitychange"));
            }, hidden);
        // A page that gets no samples sees it by the answers that do not come.
        for (const [path, text] of [["queues/mail", "Jobs"], ["", "Cores at work"]]) {
            const page = await open(path);
            await live(page);
            await shows(page, text);
            await ask("freeze");
            await page.locator('[data-status="behind"]').waitFor();
            await ask("thaw");
            await live(page);
            fine(page);
            await page.context().close();
        }
        const page = await open("");
        await live(page);
        equal(await ask("viewers 1"), true);
        await hide(page, true);
        equal(await ask("viewers 0"), true);
        await hide(page, false);
        equal(await ask("viewers 1"), true);
        await live(page);
        fine(page);
        await page.context().close();

        // A page of events gets none while it is not seen, and goes on when it is.
        const frames = { sent: [], heard: [] };
        const events = await open("events?sample=1", { frames });
        await live(events);
        const rows = events.getByRole("region", { name: "Events" }).locator("tr");
        // The first push may be before the page listens.
        const comes = async (name) => {
            for (;;) {
                await ask(`push 1 ${name}`);
                if (await rows.filter({ hasText: name }).first().waitFor({ timeout: 2000 }).then(() => true, () => false)) return;
            }
        };
        await comes("before");
        const unsubscribed = () => {
            const all = frames.sent.filter(({ cmd }) => cmd === "Unsubscribe");
            return all.length > 0 && frames.heard.some(({ reqId }) => reqId === all.at(-1).reqId);
        };
        await hide(events, true);
        await reached("the events are ended", unsubscribed);
        const heard = frames.heard.length;
        await ask("push 10 unseen");
        equal(frames.heard.length, heard, "something comes to a page that is not seen");
        await hide(events, false);
        await comes("after");
        equal(frames.heard.filter(({ name }) => name === "unseen"), []);
        fine(events);
        await events.context().close();
    },

    /** A server without a job says how to push one, with its own address. */
    async empty() {
        const page = await open("", { scheme: "dark" });
        await shows(page, "Push a first job");
        await accessible(page);
        const shown = {};
        for (const language of ["Python", "Node.js", "Rust", "corq", "curl"]) {
            await page.getByRole("button", { name: language, exact: true }).click();
            const text = await page.locator("pre").textContent();
            shown[language] = text;
            ok(language === "corq" || text.includes(settings.address) || text.includes(`port=${settings.tcp}`) || text.includes(`:${settings.tcp}`), text);
        }
        await ask(`rust ${JSON.stringify(shown["Rust"])}`);
        const text = await page.locator("pre").textContent();
        await ask(`sh ${text.replaceAll("\\\n", " ").replaceAll("\n", " ")}`);
        await shows(page, "Busiest queues");
        await page.getByRole("link", { name: "emails" }).first().waitFor();
        await ask(`node ${JSON.stringify(shown["Node.js"])}`);
        await page.goto(`${settings.base}queues/emails`);
        await page.getByRole("region", { name: "Jobs of emails" }).getByText("welcome", { exact: true }).waitFor();
        fine(page);
    },

    /** Ten thousand queues: the page holds the rows that are seen, and reaches the last. */
    async many() {
        const page = await open("queues");
        await page.getByRole("link", { name: "q-00000" }).waitFor();
        const box = page.getByRole("region", { name: "Queues" });
        // Of all that is scrolled and sorted from here on: a task that makes many rows is felt.
        const made = await box.locator("tbody").evaluateHandle((body) => {
            const [known, made] = [new WeakSet(body.children), { most: 0 }];
            new MutationObserver((records) => {
                const rows = records.flatMap((record) => [...record.addedNodes]).filter((row) => row.ariaHidden !== "true");
                made.most = Math.max(made.most, rows.filter((row) => !known.has(row)).length);
                for (const row of rows) known.add(row);
            }).observe(body, { childList: true });
            return made;
        });
        const last = page.getByRole("link", { name: settings.last });
        const end = performance.now() + DEADLINE;
        while ((await last.count()) === 0) {
            ok(performance.now() < end, "the last queue does not come");
            const rows = await box.locator("tbody tr").count();
            ok(rows < 120, `${rows} rows are there at once`);
            await box.evaluate((element) => (element.scrollTop = element.scrollHeight));
            await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
        }
        await last.waitFor();
        await page.getByLabel("Name begins with").fill("q-0123");
        await page.waitForURL("**prefix=q-0123");
        await page.getByText("10 queues").waitFor();
        await page.getByRole("button", { name: "Backlog" }).click();
        await page.waitForURL("**sort=waiting**");
        const { most } = await made.jsonValue();
        ok(most > 0 && most <= 12, `${most} rows were made in one task`);
        fine(page);
    },

    /** The same page below another path, by a proxy. */
    async proxy() {
        const page = await open("queues/mail");
        await live(page);
        await shows(page, "Jobs");
        const job = page.locator("td a").first();
        await job.click();
        await page.waitForURL((url) => url.pathname.startsWith(`${settings.path}jobs/`));
        await shows(page, "Payload");
        await page.getByRole("link", { name: "Overview" }).click();
        await page.waitForURL((url) => url.pathname === settings.path);
        await shows(page, "Cores at work");
        await page.reload();
        await live(page);
        fine(page);
    },
};

const tools = { settings, ask, open, live, shows, fine, accessible, shot, confirm };
Object.assign(parts, further(tools), jobs(tools));
await parts[part]();
await browser.close();
process.exit(0);
