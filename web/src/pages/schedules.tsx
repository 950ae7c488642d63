// Schedules: what they push and when, run at once, held and let go, set and removed, with their next runs shown before.

import { useEffect, useMemo, useState } from "preact/hooks";
import { now } from "../lib/clock";
import { absolute, brief, count, duration, many } from "../lib/format";
import { useQuery } from "../lib/hooks";
import { rawAt } from "../lib/json";
import { knows } from "../lib/known";
import { covered } from "../lib/redact";
import { may } from "../lib/rights";
import { filter, link, setFilters } from "../lib/router";
import { Refused, ask } from "../lib/server";
import { Button, Card, FilterField, Problem, QueueLink, Time } from "../parts/basics";
import { say } from "../parts/dialog";
import { QueueField } from "../parts/queue-field";
import { type Cron, cadence, enable, remove, trigger } from "../parts/schedule-actions";
import { Menu } from "../parts/menu";
import { type Column, Table } from "../parts/table";

export default function Schedules() {
    const list = useQuery<{ crons: Cron[] }>("CronList", {}, 3000);
    const [wanted, queue, edit] = [filter("find"), filter("queue"), filter("edit")];
    const crons = (list.data?.crons ?? [])
        .filter((cron) => cron.name.includes(wanted) && (!queue || cron.queue === queue))
        .sort((one, other) => (one.nextRun ?? Infinity) - (other.nextRun ?? Infinity) || (one.name < other.name ? -1 : 1));
    const columns: readonly Column<Cron>[] = [
        {
            key: "name",
            label: "Schedule",
            cell: (cron) => (
                <>
                    {may("server") ? (
                        <a class="name" href={link(["schedules", cron.name])}>
                            {cron.name}
                        </a>
                    ) : (
                        <b>{cron.name}</b>
                    )}{" "}
                    {cron.enabled === false && <span class="tag warn">disabled</span>}
                </>
            ),
        },
        { key: "queue", label: "Queue", width: "170px", wide: true, cell: (cron) => <QueueLink name={cron.queue} /> },
        { key: "when", label: "When", width: "170px", cell: (cron) => <span class={cron.schedule ? "mono" : ""}>{cadence(cron)}</span> },
        { key: "zone", label: "Zone", width: "130px", wide: true, cell: (cron) => (cron.schedule ? (cron.timezone ?? "UTC") : <span class="zero">–</span>) },
        {
            key: "next",
            label: "Next run",
            width: "130px",
            cell: (cron) => (cron.nextRun ? <span title={absolute(cron.nextRun)}>{soon(cron.nextRun)}</span> : <span class="zero">none</span>),
        },
        {
            key: "runs",
            label: "Runs",
            width: "100px",
            right: true,
            wide: true,
            cell: (cron) => `${count(cron.executions)}${cron.maxLimit ? ` of ${count(cron.maxLimit)}` : ""}`,
        },
        ...(may("change") ? [{ key: "actions", label: "Actions", width: "118px", right: true, wide: true, cell: (cron: Cron) => <Actions cron={cron} again={list.again} /> }] : []),
    ];
    const edited = edit && edit !== "new" ? list.data?.crons.find((cron) => cron.name === edit) : undefined;
    return (
        <>
            <div class="head">
                <h1>Schedules</h1>
                <span class="grow" />
                <div class="filters">
                    <FilterField label="Name has" value={wanted} onChange={(value) => setFilters({ find: value || null })} />
                    <QueueField label="Queue of the schedules" placeholder="All queues" value={queue} onChange={(value) => setFilters({ queue: value || null })} />
                    {may("change") && (
                        <Button kind="primary" icon="cron" onClick={() => setFilters({ edit: "new" })}>
                            New schedule
                        </Button>
                    )}
                </div>
            </div>
            {list.error && <Problem error={list.error} />}
            {may("change") && (edit === "new" || edited) && (
                <Editor key={edit} cron={edited} done={() => (setFilters({ edit: null }), list.again())} />
            )}
            <Card class="flush">
                <Table
                    label="Schedules"
                    tall
                    columns={columns}
                    rows={crons}
                    keyOf={(cron) => cron.name}
                    rowHeight={42}
                    empty={list.data ? (list.data.crons.length > 0 ? "No schedule matches" : "No schedule yet") : "Loading…"}
                />
            </Card>
            {list.data && <p class="note">{many(crons.length, "schedule")}</p>}
        </>
    );
}

/** How long it takes until then, or the time if that is how times are shown. */
function soon(at: number) {
    const wait = at - now.value;
    return wait <= 0 ? "now" : wait < 86_400_000 ? `in ${brief(wait)}` : <Time at={at} />;
}

function Actions({ cron, again }: { cron: Cron; again: () => void }) {
    const isHere = knows("CronTrigger") && may("server");
    const isOff = cron.enabled === false;
    return (
        <span class="row-actions">
            {isHere && <Button kind="quiet" icon="play" label={`Run ${cron.name} now`} onClick={() => void trigger(cron, again)} />}
            <Menu
                label={`Actions on ${cron.name}`}
                items={[
                    ...(isHere ? [{ name: isOff ? "Enable" : "Disable", run: () => void enable(cron, isOff, again) }] : []),
                    { name: "Edit", run: () => setFilters({ edit: cron.name }) },
                    { name: "Remove", danger: true, run: () => void remove(cron, again) },
                ]}
            />
        </span>
    );
}

/** What the form has, and what the server says of a schedule that is not set by it. */
const OF_FORM = new Set(["name", "queue", "schedule", "repeatEvery", "timezone", "jobName", "nextRun", "executions", "enabled"]);

interface Preview {
    data: { runs: { at: number; local: string }[]; timezone?: string };
}

/** A payload of so many characters is not edited here. */
const LARGE = 1_000_000;

function Editor({ cron, done }: { cron: Cron | undefined; done: () => void }) {
    const [form, setForm] = useState({
        name: cron?.name ?? "",
        queue: cron?.queue ?? "",
        by: cron?.repeatEvery ? "every" : "schedule",
        schedule: cron?.schedule ?? "*/15 * * * *",
        every: cron?.repeatEvery ? String(cron.repeatEvery / 1000) : "60",
        timezone: cron?.timezone ?? Intl.DateTimeFormat().resolvedOptions().timeZone,
        jobName: cron?.jobName ?? "",
        data: cron ? null : "{}",
        confirmed: false,
    });
    const whole = useQuery<{ cron: Cron }>("CronGet", cron ? { name: cron.name } : null);
    const raw = rawAt(whole.text, ["cron", "data"]);
    // What is covered here would replace the values that it covers.
    const isShown = useMemo(() => raw !== undefined && raw.length < LARGE && covered(raw) === raw, [raw]);
    const isLoading = cron !== undefined && !whole.data && !whole.error;
    const isAnew = cron !== undefined && !isShown;
    const data = form.data ?? (isShown ? raw! : "");
    const why = whole.error
        ? `The server does not show the payload (${whole.error.message})`
        : raw === undefined
          ? "The server does not show the payload"
          : raw.length < LARGE
            ? "The payload has redacted values"
            : "The payload is too large to be shown here";
    const [error, setError] = useState("");
    const change = (fields: Partial<typeof form>) => setForm({ ...form, ...fields });
    const isCron = form.by === "schedule";
    const when = isCron ? { schedule: form.schedule, timezone: form.timezone || "UTC" } : { repeatEvery: Math.round(Number(form.every) * 1000) };
    const asked = useLater(JSON.stringify(when));
    const preview = useQuery<Preview>("CronPreview", knows("CronTrigger") ? { ...JSON.parse(asked), count: 5 } : null);
    const submit = async (event: Event) => {
        event.preventDefault();
        try {
            JSON.parse(data);
        } catch (wrong) {
            setError(`The payload is no JSON: ${(wrong as Error).message}`);
            return;
        }
        // What the form does not show stays as it is.
        const others = Object.fromEntries(Object.entries(cron ?? {}).filter(([key]) => !OF_FORM.has(key)));
        try {
            await ask("Cron", { ...others, name: form.name, queue: form.queue, ...when, ...(form.jobName ? { jobName: form.jobName } : {}) }, { data });
            say(`The schedule ${form.name} is set`);
            done();
        } catch (refused) {
            setError((refused as Refused).message);
        }
    };
    const input = (name: "name" | "schedule" | "every" | "timezone" | "jobName", label: string, extra: object = {}) => (
        <label class="row-field">
            <span>{label}</span>
            <input
                class="field"
                name={name}
                value={form[name]}
                autocomplete="off"
                spellcheck={false}
                onInput={(event) => change({ [name]: event.currentTarget.value })}
                {...extra}
            />
        </label>
    );
    return (
        <Card title={cron ? `Edit ${cron.name}` : "New schedule"}>
            <form class="editor" onSubmit={(event) => void submit(event)}>
                <div class="editor-fields">
                    {input("name", "Name", { required: true, disabled: cron !== undefined })}
                    <label class="row-field">
                        <span>Queue</span>
                        <QueueField label="Queue of its jobs" placeholder="Queue" value={form.queue} onChange={(queue) => change({ queue })} />
                    </label>
                    <label class="row-field">
                        <span>Runs</span>
                        <select class="field" name="by" value={form.by} onChange={(event) => change({ by: event.currentTarget.value })}>
                            <option value="schedule">by the clock</option>
                            <option value="every">at an interval</option>
                        </select>
                    </label>
                    {isCron ? input("schedule", "Cron expression", { required: true, class: "field mono" }) : input("every", "Interval in seconds", { required: true, type: "number", min: "0.01", step: "any" })}
                    {isCron && input("timezone", "Zone")}
                    {input("jobName", "Name of its jobs")}
                    <label class="row-field editor-wide">
                        <span>Payload, as JSON</span>
                        <textarea class="field mono" name="data" rows={4} spellcheck={false} value={data} disabled={isLoading} onInput={(event) => change({ data: event.currentTarget.value })} />
                        {isAnew && !isLoading && <small>{why}, so enter it again.</small>}
                    </label>
                    {isAnew && !isLoading && (
                        <label class="check editor-wide">
                            <input type="checkbox" name="confirmed" checked={form.confirmed} onChange={(event) => change({ confirmed: event.currentTarget.checked })} />
                            This payload replaces the current one
                        </label>
                    )}
                </div>
                {knows("CronTrigger") && (
                    <div class="editor-side">
                        <h3>Its next runs</h3>
                        {preview.error ? <p class="error-text">{preview.error.message}</p> : <Runs runs={preview.data?.data.runs ?? []} />}
                    </div>
                )}
                {error && (
                    <p class="problem editor-wide" role="alert">
                        {error}
                    </p>
                )}
                <div class="buttons editor-wide">
                    <Button type="submit" kind="primary" disabled={(isAnew && !form.confirmed) || !form.queue}>
                        {cron ? "Replace the schedule" : "Set the schedule"}
                    </Button>
                    <Button onClick={done}>Cancel</Button>
                </div>
            </form>
        </Card>
    );
}

/** The next runs, in the zone of the schedule. */
export function Runs({ runs }: { runs: readonly { at: number; local: string }[] }) {
    return (
        <ol class="runs">
            {runs.map((run) => (
                <li key={run.at}>
                    <span class="mono">{run.local.replace("T", " ")}</span> <span class="note">in {duration(Math.max(0, run.at - now.value))}</span>
                </li>
            ))}
        </ol>
    );
}

/** What was last typed, once nothing was typed for a while. */
function useLater(value: string): string {
    const [later, setLater] = useState(value);
    useEffect(() => {
        const timer = setTimeout(() => setLater(value), 300);
        return () => clearTimeout(timer);
    }, [value]);
    return later;
}
