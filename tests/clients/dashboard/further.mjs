// The further pages of the dashboard: dead letters, search, flows, schedules, workers, groups, webhooks, events and the server.
// The test sends commands for this file: "call <command> <fields>" says the reply, "text <command> <fields>" its text, and
// "many <command> <list of fields>" how many were done. What a server does not know must not be offered.
import { deepStrictEqual as equal, ok } from "node:assert";

export function further({ settings, ask, open, live, shows, fine, accessible, shot, confirm }) {
    const call = (cmd, fields = {}) => ask(`call ${cmd} ${JSON.stringify(fields)}`);
    const item = async (page, button, name) => {
        await page.getByRole("button", { name: button, exact: true }).click();
        await page.getByRole("menuitem", { name }).click();
    };
    const toast = (page, text) => page.locator(".toast", { hasText: text }).first().waitFor();
    const counts = async (queue) => (await call("GetJobCounts", { queue })).counts;

    const knows = {};
    const learn = async () => {
        for (const [cmd, fields] of Object.entries({ Bulk: {}, CronTrigger: {}, TestWebhook: {}, Subscribe: { sample: 0 } })) {
            knows[cmd] = !String((await call(cmd, fields)).error).startsWith("Unknown command");
        }
    };
    const push = (queue, data, fields = {}) => call("PUSH", { queue, data, ...fields });

    /** Makes jobs dead letters: each with its id and its error. */
    const bury = async (queue, letters) => {
        for (let at = 0; at < letters.length; at += 500) {
            const some = letters.slice(at, at + 500);
            const jobs = some.map(([jobId]) => ({ data: { n: 1 }, maxAttempts: 1, priority: 1000, jobId }));
            await call("PUSHB", { queue, jobs });
            await call("PULLB", { queue, count: some.length });
            equal(await ask(`many FAIL ${JSON.stringify(some.map(([id, error]) => ({ id, error })))}`), some.length);
        }
    };

    /** A flow of one job and those that it waits for. */
    const pushFlow = (id, queue, children) => {
        const ids = children.map((child) => child.id);
        const jobs = children.map((child) => ({ id: child.id, queue, input: { data: 1, name: child.name, parentId: id } }));
        return call("PUSHF", { jobs: [...jobs, { id, queue, input: { data: 1, name: id, childrenIds: ids, dependsOn: ids } }] });
    };
    const two = ["scene-0", "scene-1"].map((id) => ({ id, name: id.replace("-", " ") }));

    /** Two workers, or the same ones again: they are forgotten once they have been silent for a while. */
    const enlist = async () => {
        for (const [name, queues] of [["mailer", ["mail"]], ["biller", ["bills"]]]) {
            await call("RegisterWorker", { workerId: name, name, queues, concurrency: 8, hostname: "host-1", pid: 7 });
            if (name === "mailer") await call("Heartbeat", { id: name, activeJobs: 3, processed: 10, failed: 1 });
        }
    };

    /** Something for each page. */
    const furnish = async () => {
        await learn();
        await bury("mail", [["dead", "broken pipe"]]);
        await push("mail", { to: "ada@example.org" });
        for (let n = 1; n <= 3; n++) {
            await push("mail", { order: { lines: [{ sku: "S-7" }] } }, { groupId: `tenant-${n}` });
        }
        await pushFlow("film", "video", two);
        await call("Cron", { name: "nightly", queue: "bills", data: 1, schedule: "0 3 * * *" });
        await enlist();
        const { data } = await call("AddWebhook", { url: "https://example.org/hook", events: ["job.stalled"], queue: "none" });
        return data.webhookId;
    };

    return {
        /** Every page in both colours, at the sizes of a desk and of a phone. */
        async further_pages() {
            const webhook = await furnish();
            const paths = [
                ["dead", "By queue"],
                ["dead?queue=mail", "broken pipe"],
                ["search", "Find jobs by any text"],
                ["search?text=ada", "1 job found"],
                ["flows", "A flow is a job"],
                ["flows?queue=video", "film"],
                ["flows/film", "3 jobs"],
                ["flows/film?size=dots&state=waiting", "Waits for others"],
                ["schedules", "nightly"],
                ["schedules?edit=new", "Cron expression"],
                ["schedules/nightly", "The schedule"],
                ["workers", "host-1"],
                ["groups", "Queues with groups"],
                ["groups?queue=mail", "tenant"],
                ["webhooks?new=yes", "Events; choose none to get all"],
                [`webhooks/${webhook}`, "What it gets"],
                ["events", knows.Subscribe ? "0 events" : "sends no events by choice"],
                ["server", "Longest turns"],
            ];
            for (const [path, text] of paths) {
                for (const scheme of ["light", "dark"]) {
                    await enlist();
                    const page = await open(path, { scheme });
                    await live(page);
                    await shows(page, text);
                    await accessible(page);
                    await shot(page, path, scheme);
                    fine(page);
                    await page.context().close();
                }
                await enlist();
                const phone = await open(path, { size: { width: 390, height: 800 } });
                await shows(phone, text);
                await accessible(phone);
                await shot(phone, path, "phone");
                const wide = await phone.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
                ok(wide <= 0, `${path} is ${wide} too wide for a phone`);
                fine(phone);
                await phone.context().close();
            }
            const page = await open();
            await live(page);
            equal(await page.getByRole("navigation").getByRole("link", { name: "Live events" }).count(), knows.Subscribe ? 1 : 0);
            await page.keyboard.press("g");
            await page.keyboard.press("x");
            await page.waitForURL("**/dead");
            fine(page);
        },

        /** Thousands of dead letters of one error are retried and seen to finish; single ones as well. */
        async dead_letters() {
            await learn();
            const MANY = knows.Bulk ? 10_000 : 10;
            const letters = Array.from({ length: MANY }, (_, n) => [`late-${n}`, `timeout after ${n} ms`]);
            await bury("mail", [...letters, ["one-dead", "broken pipe"], ["other-dead", "broken pipe"]]);
            await bury("bills", [["bill-1", "broken pipe"], ["bill-2", "no such bill"]]);
            const page = await open("dead");
            await live(page);
            if (!knows.Bulk) {
                await page.getByRole("link", { name: "mail", exact: true }).click();
                await page.waitForURL("**/dead?queue=mail");
                await page.getByRole("button", { name: /^Retry / }).first().waitFor();
                equal(await page.getByRole("button", { name: "Retry all" }).count(), 0);
                fine(page);
                return;
            }
            await page.getByRole("link", { name: "timeout after # ms" }).click();
            await page.waitForURL("**/dead?queue=mail&group=**");
            // The list has those of the error alone.
            const table = page.getByRole("region", { name: "Dead letters of mail" });
            await table.getByText("timeout after").first().waitFor();
            equal(await table.getByText("broken pipe").count(), 0);
            await page.getByRole("button", { name: "Retry all that match" }).click();
            const dialog = page.getByRole("dialog");
            await dialog.getByText("A dry run checked").waitFor();
            await accessible(page);
            equal((await counts("mail")).failed, MANY + 2, "a dry run changes nothing");
            const number = MANY.toLocaleString("en-US");
            await confirm(page, `Retry ${number} dead letters`);
            await page.locator('[data-task="done"]', { hasText: `${number} retried` }).waitFor();
            await accessible(page);
            const after = await counts("mail");
            equal([after.failed, after.waiting], [2, MANY]);
            // They run, and the page says how many have finished.
            const done = await open("queues/mail");
            await live(done);
            for (let left = MANY; left > 0; left -= 1000) {
                const { jobs } = await call("PULLB", { queue: "mail", count: 1000 });
                equal((await call("ACKB", { ids: jobs.map((job) => job.id) })).ok, true);
            }
            await done.getByRole("region", { name: "Jobs by state" }).locator("a", { hasText: "Completed" }).locator(`[title="${number}"]`).waitFor();
            equal((await counts("mail")).completed, MANY);
            fine(done);
            await done.context().close();
            // What is gone from the server goes from the page.
            await page.getByRole("button", { name: "All errors" }).click();
            await table.getByText("broken pipe").first().waitFor();
            await page.getByRole("button", { name: "Retry one-dead" }).click();
            await toast(page, "1 dead letter retried");
            await page.getByRole("button", { name: "Retry one-dead" }).waitFor({ state: "detached" });
            await page.getByRole("button", { name: "Remove other-dead" }).click();
            await confirm(page, "Remove 1 job");
            await toast(page, "1 dead letter removed");
            equal([(await counts("mail")).failed, (await counts("mail")).waiting], [0, 1]);
            // Filters are part of the address, and of what is removed.
            await page.goto(`${settings.base}dead?queue=bills&error=pipe`);
            await live(page);
            await page.getByRole("button", { name: "Remove all that match" }).click();
            await confirm(page, "Remove 1 dead letter", { word: "bills" });
            await page.locator('[data-task="done"]', { hasText: "1 removed" }).waitFor();
            equal((await counts("bills")).failed, 1);
            fine(page);
        },

        /** A task that is under way is cancelled, and what it has changed stays. */
        async cancelled_task() {
            await learn();
            if (!knows.Bulk) return;
            await bury("mail", Array.from({ length: 5000 }, (_, n) => [`late-${n}`, "late"]));
            const page = await open("dead?queue=mail");
            await live(page);
            await page.getByRole("button", { name: "Retry all" }).waitFor();
            const { taskId } = await call("Bulk", { action: "retry", queue: "mail", filter: {} });
            const row = page.locator("[data-task]", { hasText: "Retry" });
            await row.waitFor();
            // It may be over before the button is pressed; then there is nothing to be cancelled.
            const pressed = await row.getByRole("button", { name: "Cancel" }).click({ timeout: 5000 }).then(() => true, () => false);
            if (pressed) await confirm(page, "Cancel the task");
            await page.locator('[data-task="cancelled"], [data-task="done"]').waitFor();
            const { task } = await call("GetTask", { task: taskId });
            equal((await counts("mail")).waiting, task.changed);
            fine(page);
        },

        async search() {
            await furnish();
            const page = await open("search");
            await live(page);
            await page.getByLabel("Text in the payload").fill("ada@");
            await page.getByRole("button", { name: "Search", exact: true }).click();
            await page.waitForURL("**text=ada%40**");
            await shows(page, "1 job found");
            await page.locator('[data-covered="all"]').waitFor();
            await page.getByLabel("Text in the payload").fill("");
            await page.getByLabel("Path in the payload").fill("order.lines.0.sku");
            await page.getByLabel("Value at that path").fill("S-7");
            await page.getByRole("button", { name: "Search", exact: true }).click();
            await shows(page, "3 jobs found");
            // The address alone finds the same.
            await page.reload();
            await shows(page, "3 jobs found");
            await page.locator("td a").first().click();
            await page.waitForURL("**/jobs/**");
            await page.goto(`${settings.base}search?text=nowhere-to-be-found`);
            await shows(page, "No job matches");
            fine(page);
        },

        /** A flow is seen as a graph; of thousands of jobs only those that are seen are drawn. */
        async flows() {
            await pushFlow("film", "video", two);
            await pushFlow("crowd", "crowds", Array.from({ length: 1500 }, (_, n) => ({ id: `crowd-${n}`, name: `one ${n}` })));
            const page = await open("flows?queue=video");
            await live(page);
            await page.getByRole("link", { name: "film", exact: true }).click();
            await page.waitForURL("**/flows/film");
            const job = (id) => page.locator(`[data-job="${id}"]`);
            for (const id of ["film", "scene-0", "scene-1"]) await job(id).waitFor();
            equal(await page.locator(".edge").count(), 2);
            await job("film").locator("a").focus();
            await page.keyboard.press("ArrowRight");
            await page.waitForFunction(() => document.activeElement.closest('[data-job="scene-0"]'));
            await page.keyboard.press("ArrowDown");
            await page.waitForFunction(() => document.activeElement.closest('[data-job="scene-1"]'));
            await page.keyboard.press("ArrowLeft");
            await page.waitForFunction(() => document.activeElement.closest('[data-job="film"]'));
            await page.getByRole("link", { name: /^Waits for others/ }).click();
            await page.waitForURL("**state=waiting-children");
            await page.locator('.is-dim[data-job="scene-0"]').waitFor();
            await page.goto(`${settings.base}flows/crowd`);
            await live(page);
            await job("crowd").waitFor();
            const drawn = await page.locator("[data-job]").count();
            ok(drawn > 3 && drawn < 100, `${drawn} jobs are drawn at once`);
            await page.getByText(/of at least/).waitFor();
            const box = page.getByRole("region", { name: "The jobs of the flow" });
            await box.evaluate((element) => (element.scrollTop = element.scrollHeight));
            await page.waitForFunction(() => !document.querySelector('[data-job="crowd"]'));
            ok((await page.locator("[data-job]").count()) < 100);
            await job((await page.locator("[data-job]").last().getAttribute("data-job"))).locator("a").click();
            await page.waitForURL("**/jobs/crowd-**");
            fine(page);
        },

        async schedules() {
            await furnish();
            const page = await open("schedules");
            await live(page);
            await shows(page, "nightly");
            await page.getByRole("button", { name: "New schedule" }).click();
            await page.locator("[name=name]").fill("report");
            await page.getByLabel("Queue of its jobs").fill("bills");
            await page.locator("[name=schedule]").fill("30 4 * * *");
            await page.locator("[name=timezone]").fill("Europe/Berlin");
            await page.locator("[name=data]").fill("{]");
            await page.getByRole("button", { name: "Set the schedule" }).click();
            await page.getByRole("alert").filter({ hasText: "no JSON" }).waitFor();
            await page.locator("[name=data]").fill('{"id":9007199254740993}');
            if (knows.CronTrigger) {
                await page.locator(".runs li").nth(4).waitFor();
                await page.locator(".runs", { hasText: "04:30:00" }).waitFor();
            }
            await accessible(page);
            await page.getByRole("button", { name: "Set the schedule" }).click();
            await toast(page, "The schedule report is set");
            const { cron } = await call("CronGet", { name: "report" });
            equal([cron.queue, cron.schedule, cron.timezone], ["bills", "30 4 * * *", "Europe/Berlin"]);
            if (knows.CronTrigger) {
                await page.getByRole("button", { name: "Run report now" }).click();
                await confirm(page, "Push 1 job");
                await toast(page, "report has pushed the job");
                // The payload has the digits that were typed.
                ok((await ask('text PULL {"queue":"bills"}')).includes("9007199254740993"));
                await item(page, "Actions on report", "Disable");
                await confirm(page, "Disable report");
                await page.locator("tr", { hasText: "report" }).getByText("disabled").waitFor();
                equal((await call("CronGet", { name: "report" })).cron.enabled, false);
                await item(page, "Actions on report", "Enable");
                await page.locator("tr", { hasText: "report" }).getByText("disabled").waitFor({ state: "detached" });
            } else {
                equal(await page.getByRole("button", { name: "Run report now" }).count(), 0);
            }
            await item(page, "Actions on report", "Edit");
            await page.locator("[name=schedule]").fill("0 5 * * *");
            // The payload is there with its digits, and stays if it is left alone.
            await page.waitForFunction(() => document.querySelector("[name=data]").value === '{"id":9007199254740993}');
            equal(await page.locator("[name=confirmed]").count(), 0);
            await page.getByRole("button", { name: "Replace the schedule" }).click();
            await toast(page, "The schedule report is set");
            await page.locator("[name=schedule]").waitFor({ state: "detached" });
            equal((await call("CronGet", { name: "report" })).cron.schedule, "0 5 * * *");
            ok((await ask('text CronGet {"name":"report"}')).includes("9007199254740993"));
            // What is covered is neither shown, nor saved in place of what it covers.
            const secretive = '{"name":"secretive","queue":"bills","schedule":"0 3 * * *","data":{"user":{"password":"hunter2"},"id":9007199254740993}}';
            // As text, since the calls of this test read numbers as numbers.
            const set = { method: "POST", headers: { "content-type": "application/json" }, body: secretive };
            equal((await fetch(new URL("../crons", settings.base), set)).status, 200);
            await page.goto(`${settings.base}schedules/secretive`);
            await page.locator(".payload .scalar", { hasText: "9007199254740993" }).waitFor();
            await page.locator(".payload .scalar", { hasText: "[redacted]" }).waitFor();
            ok(!(await page.content()).includes("hunter2"), "a covered value is shown");
            await accessible(page);
            await item(page, "Actions", "Edit");
            await shows(page, "The payload has redacted values, so enter it again.");
            ok(await page.getByRole("button", { name: "Replace the schedule" }).isDisabled(), "the payload is given anew");
            equal(await page.locator("[name=data]").inputValue(), "");
            await page.locator("[name=data]").fill('{"id":9007199254740995}');
            await page.locator("[name=confirmed]").check();
            await page.getByRole("button", { name: "Replace the schedule" }).click();
            await toast(page, "The schedule secretive is set");
            ok((await ask('text CronGet {"name":"secretive"}')).includes("9007199254740995"));
            ok(!(await page.content()).includes("hunter2"));
            await page.getByRole("link", { name: "report", exact: true }).click();
            await page.waitForURL("**/schedules/report");
            await item(page, "Actions", "Remove");
            await confirm(page, "Remove 1 schedule");
            await page.waitForURL("**/schedules");
            equal((await call("CronGet", { name: "report" })).ok, false);
            fine(page);
        },

        async workers() {
            await furnish();
            const page = await open("workers");
            await live(page);
            await page.locator("tr", { hasText: "host-1" }).getByText("2 workers").waitFor();
            await page.locator("tr", { hasText: "mailer" }).getByText("3 of 8").waitFor();
            await page.getByLabel("Name, host or id").fill("biller");
            await page.locator("tr", { hasText: "mailer" }).first().waitFor({ state: "detached" });
            await page.goto(`${settings.base}workers?which=silent`);
            await shows(page, "No worker matches");
            fine(page);
        },

        async groups() {
            await furnish();
            const page = await open("groups");
            await live(page);
            await page.getByRole("link", { name: "mail", exact: true }).click();
            await page.waitForURL("**/groups?queue=mail");
            await page.getByRole("button", { name: "Pause tenant-1" }).click();
            await accessible(page);
            await confirm(page, "Pause tenant-1");
            await page.getByRole("button", { name: "Resume tenant-1" }).waitFor();
            const own = { queue: "mail", groupId: "tenant-1" };
            equal((await call("IsGroupPaused", own)).data.paused, true);
            await page.getByRole("button", { name: "Resume tenant-1" }).click();
            await page.getByRole("button", { name: "Pause tenant-1" }).waitFor();
            await item(page, "Limits of tenant-1", "Rate limit");
            await confirm(page, "Set", { fields: { max: "5", duration: "1000" } });
            await page.locator("tr", { hasText: "tenant-1" }).getByText("5/s").waitFor();
            await item(page, "Limits of tenant-1", "Concurrency");
            await confirm(page, "Set", { fields: { limit: "2" } });
            await page.locator("tr", { hasText: "tenant-1" }).getByText("2 at once").waitFor();
            await item(page, "Limits of tenant-1", "Weight");
            await confirm(page, "Set", { fields: { weight: "3" } });
            await toast(page, "tenant-1 is changed");
            await item(page, "Limits of tenant-1", "Hold");
            await confirm(page, "Set", { fields: { seconds: "86400" } });
            await page.locator("tr", { hasText: "tenant-1" }).getByText("held for").waitFor();
            const { groups } = await call("GetGroups", { queue: "mail" });
            const { limit, concurrency, weight, heldFor } = groups.find(({ id }) => id === "tenant-1");
            equal([limit, concurrency, weight, heldFor > 0], [{ max: 5, duration: 1000 }, 2, 3, true]);
            await page.getByLabel("Group has").fill("tenant-2");
            await page.locator("tr", { hasText: "tenant-1" }).waitFor({ state: "detached" });
            fine(page);
        },

        async webhooks() {
            await learn();
            const page = await open("webhooks");
            await live(page);
            await page.getByRole("button", { name: "New webhook" }).click();
            await page.locator("[name=url]").fill(settings.receiver);
            await page.getByLabel("Queue of the events").fill("mail");
            await page.locator("[name=secret]").fill("a secret");
            await page.getByLabel("job.stalled").check();
            await accessible(page);
            await page.getByRole("button", { name: "Add the webhook" }).click();
            await toast(page, "Events are posted to");
            const { webhooks } = (await call("ListWebhooks")).data;
            const own = webhooks.find(({ url }) => url === settings.receiver);
            equal([[...own.events].sort(), own.queue], [["job.completed", "job.failed", "job.stalled"], "mail"]);
            await page.getByRole("link", { name: settings.receiver }).click();
            await page.waitForURL("**/webhooks/**");
            if (knows.TestWebhook) {
                await page.getByRole("button", { name: "Post a sample" }).click();
                await confirm(page, "Post 1 sample");
                await toast(page, /Delivered: status|Not delivered/);
                await page.locator("tr", { hasText: "webhook.test" }).waitFor();
            } else {
                equal(await page.getByRole("button", { name: "Post a sample" }).count(), 0);
            }
            await item(page, "Actions", "Disable");
            await confirm(page, "Disable 1 webhook");
            await page.locator(".tag", { hasText: "disabled" }).waitFor();
            await item(page, "Actions", "Remove");
            await confirm(page, "Remove 1 webhook");
            await page.waitForURL("**/webhooks");
            equal((await call("ListWebhooks")).data.webhooks.some(({ id }) => id === own.id), false);
            fine(page);
        },

        /** Events come as they happen, by types and queues; a pause stops them, and the sample is said. */
        async events() {
            await learn();
            if (!knows.Subscribe) return;
            const page = await open("events?queue=live-*");
            await live(page);
            await page.locator('[data-sample="1"]', { hasText: "All jobs" }).waitFor();
            const table = page.getByRole("region", { name: "Events" });
            // The first push may be before the page listens.
            const comes = async (queue, text) => {
                const row = table.locator("tr", { hasText: text }).first();
                for (;;) {
                    await call("PUSH", { queue, data: 1, name: text });
                    if (await row.waitFor({ timeout: 2000 }).then(() => true, () => false)) return;
                }
            };
            await comes("live-1", "first");
            await call("PUSH", { queue: "other", data: 1, name: "unheard" });
            await comes("live-2", "second");
            equal(await table.getByText("unheard").count(), 0);
            await page.getByRole("button", { name: "Pause", exact: true }).click();
            await call("PUSH", { queue: "live-1", data: 1, name: "while-paused" });
            await page.getByText(/[1-9]\d* events? while paused/).waitFor();
            equal(await table.getByText("while-paused").count(), 0);
            await page.getByRole("button", { name: "Resume", exact: true }).click();
            await comes("live-1", "after");
            await page.getByRole("button", { name: "removed", exact: true }).click();
            await page.waitForURL("**type=removed**");
            await page.getByLabel("Which jobs").selectOption("1000");
            await page.locator('[data-sample="1000"]', { hasText: "1 in 1,000 jobs" }).waitFor();
            await accessible(page);
            await page.getByRole("link", { name: "Help" }).click();
            await shows(page, "Good to know");
            fine(page);
        },

        async server() {
            await push("mail", 1);
            const page = await open("server");
            await live(page);
            const shards = page.getByRole("region", { name: "Shards" });
            await shards.locator("tbody tr").first().waitFor();
            await page.getByRole("region", { name: "Longest turns" }).locator("tbody tr").first().waitFor();
            await page.getByRole("region", { name: "Findings" }).getByText("open files").waitFor();
            const settled = page.getByRole("region", { name: "Settings" });
            await settled.getByText("HTTP_PORT").waitFor();
            equal(await settled.getByText("EVENTS_KEPT").count(), 0, "what is given comes first");
            await page.getByRole("button", { name: "All", exact: true }).click();
            await page.waitForURL("**settings=all**");
            await page.getByLabel("Setting has").fill("events_k");
            await settled.getByText("EVENTS_KEPT").waitFor();
            await accessible(page);
            await page.getByLabel("Metric has").fill("build_info");
            await page.getByRole("region", { name: "Metrics" }).getByText("corq_build_info").waitFor();
            await page.waitForURL("**metric=build_info");
            // What others do meanwhile comes into the audit log.
            const audit = page.getByRole("region", { name: "Audit log" });
            await audit.waitFor();
            await call("Pause", { queue: "mail" });
            await audit.locator("tr", { hasText: "Pause" }).filter({ hasText: "mail" }).filter({ hasText: "ok" }).waitFor();
            await page.getByRole("button", { name: "Release unused memory" }).click();
            await confirm(page, "Release memory");
            await toast(page, "Unused memory is released");
            fine(page);
        },

        /** One that may only look is offered nothing that changes, and one of a queue only its own. */
        async further_rights() {
            await bury("mail", [["dead", "broken pipe"]]);
            await push("mail", { to: "ada@example.org" });
            const expected = ["401", "WebSocket"];
            const enter = async (path, token) => {
                const page = await open(path, { expected });
                await page.getByLabel("Token").fill(token);
                await page.getByRole("button", { name: "Log in" }).click();
                return page;
            };
            const reader = await enter("dead?queue=mail", settings.tokens.read);
            await reader.getByRole("region", { name: "Dead letters of mail" }).getByText("broken pipe").waitFor();
            for (const path of ["dead?queue=mail", "schedules", "groups?queue=mail", "webhooks", "server"]) {
                await reader.goto(settings.base + path);
                await live(reader);
                await reader.locator("h1").waitFor();
                for (const name of [/^Retry/, /^Remove/, /^New /, /^Pause/, /^Actions/, /^Release/]) {
                    equal(await reader.locator("main").getByRole("button", { name }).count(), 0, `${path} offers ${name}`);
                }
            }
            fine(reader);
            await reader.context().close();
            const clerk = await enter("dead?queue=mail", settings.tokens.clerk);
            await clerk.getByRole("region", { name: "Dead letters of mail" }).getByText("broken pipe").waitFor();
            for (const [name, there] of [["Workers", 1], ["Flows", 1], ["Webhooks", 0], ["Server", 0]]) {
                equal(await clerk.getByRole("navigation").getByRole("link", { name }).count(), there, name);
            }
            await clerk.goto(`${settings.base}search?text=ada`);
            await shows(clerk, "Choose one of the queues");
            await clerk.goto(`${settings.base}search?text=ada&queue=mail`);
            await shows(clerk, "1 job found");
            fine(clerk);
        },
    };
}
