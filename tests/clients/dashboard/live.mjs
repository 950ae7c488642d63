// What a page shows of a job changes under it, and what it copies is run as it stands. The test does what it is asked for: "sh
// <command>" runs a command and compares the job that it pushed, "log", "progress" and "end" are of the worker that has the job.
import { deepStrictEqual as equal, ok } from "node:assert";

export function jobs({ settings, ask, open, live, shows, fine, accessible }) {
    return {
        async job_live() {
            const page = await open();
            await page.addInitScript(() => {
                Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => void (window.copied = text) } });
            });
            const { small, large } = settings.jobs;
            await page.goto(`${settings.base}jobs/${small}`);
            await live(page);
            for (const name of ["Push as curl", "Push as corq"]) {
                await page.getByRole("button", { name }).click();
                await page.waitForFunction(() => window.copied !== undefined);
                const copied = await page.evaluate(() => {
                    const { copied } = window;
                    delete window.copied;
                    return copied;
                });
                await ask(`sh ${copied}`);
            }
            // None of this is by a new load of the page.
            await page.evaluate(() => (window.stays = true));
            await ask("log ten of twenty letters are out");
            await page.getByRole("list", { name: "Lines of the log" }).getByText("ten of twenty letters are out").waitFor();
            await ask("progress 50");
            await page.locator('[role="progressbar"][aria-valuenow="50"]').waitFor();
            await shows(page, "half of it");
            await ask("log all letters are out");
            await page.getByRole("list", { name: "Lines of the log" }).getByText("all letters are out").waitFor();
            await accessible(page);
            await ask(`end ${small}`);
            await page.getByRole("heading", { name: "Result" }).waitFor();
            equal(await page.evaluate(() => window.stays), true);

            // Of a job with a large payload the page says how rarely it is read, and sees its end nevertheless.
            await page.goto(`${settings.base}jobs/${large}`);
            await shows(page, "This job is very large, so it is read once");
            await page.locator("h1 ~ .tag", { hasText: "active" }).waitFor();
            await page.evaluate(() => (window.stays = true));
            await ask(`end ${large}`);
            await page.locator("h1 ~ .tag", { hasText: "completed" }).waitFor();
            equal(await page.evaluate(() => window.stays), true);
            ok(await page.getByRole("button", { name: "Read again" }).isVisible());
            fine(page);
        },
    };
}
