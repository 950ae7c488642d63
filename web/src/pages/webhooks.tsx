// Webhooks: to whom the server posts events, how that goes, a sample at once, and adding and removing one.

import { useState } from "preact/hooks";
import { count, many } from "../lib/format";
import { useQuery } from "../lib/hooks";
import { may } from "../lib/rights";
import { filter, link, setFilters } from "../lib/router";
import { Refused, ask } from "../lib/server";
import { Button, Card, Problem, QueueLink, Time } from "../parts/basics";
import { say } from "../parts/dialog";
import { Menu } from "../parts/menu";
import { QueueField } from "../parts/queue-field";
import { type Column, Table } from "../parts/table";
import { type Webhook, canTest, remove, setEnabled, test } from "../parts/webhook-actions";

/** All that a webhook can get; without a choice it gets those before the last two, which are other names. */
const EVENTS = ["job.waiting", "job.delayed", "job.active", "job.progress", "job.completed", "job.failed", "job.stalled", "job.pushed", "job.started"];

export default function Webhooks() {
    const list = useQuery<{ data: { webhooks: Webhook[]; stats: { total: number; enabled: number } } }>("ListWebhooks", {}, 3000);
    const isNew = filter("new") !== "";
    const webhooks = [...(list.data?.data.webhooks ?? [])].sort((one, other) => one.createdAt - other.createdAt);
    const columns: readonly Column<Webhook>[] = [
        {
            key: "url",
            label: "URL",
            cell: (hook) => (
                <>
                    <a class="name" title={hook.url} href={link(["webhooks", hook.id])}>
                        {hook.url}
                    </a>{" "}
                    {!hook.enabled && <span class="tag warn">disabled</span>}
                </>
            ),
        },
        {
            key: "events",
            label: "Events",
            width: "230px",
            wide: true,
            cell: (hook) => (hook.events.length === 0 ? <span class="zero">all</span> : <span title={hook.events.join(", ")}>{hook.events.join(", ")}</span>),
        },
        { key: "queue", label: "Queue", width: "130px", wide: true, cell: (hook) => (hook.queue ? <QueueLink name={hook.queue} /> : <span class="zero">all</span>) },
        { key: "last", label: "Last sent", width: "120px", cell: (hook) => <Time at={hook.lastTriggered} /> },
        { key: "ok", label: "Delivered", width: "92px", right: true, wide: true, cell: (hook) => <span class={hook.successCount ? "" : "zero"}>{count(hook.successCount)}</span> },
        { key: "bad", label: "Failed", width: "86px", right: true, cell: (hook) => <span class={hook.failureCount ? "error-text" : "zero"}>{count(hook.failureCount)}</span> },
        ...(may("change") ? [{ key: "actions", label: "Actions", width: "118px", right: true, wide: true, cell: (hook: Webhook) => <Actions hook={hook} again={list.again} /> }] : []),
    ];
    return (
        <>
            <div class="head">
                <h1>Webhooks</h1>
                <span class="grow" />
                {may("change") && !isNew && (
                    <Button kind="primary" icon="webhook" onClick={() => setFilters({ new: "yes" })}>
                        New webhook
                    </Button>
                )}
            </div>
            {list.error && <Problem error={list.error} />}
            {isNew && may("change") && <Editor done={() => (setFilters({ new: null }), list.again())} />}
            <Card class="flush">
                <Table
                    label="Webhooks"
                    tall
                    columns={columns}
                    rows={webhooks}
                    keyOf={(hook) => hook.id}
                    rowHeight={42}
                    empty={list.data ? "No webhook yet" : "Loading…"}
                />
            </Card>
            {list.data && webhooks.length > 0 && (
                <p class="note">
                    {many(webhooks.length, "webhook")}, {count(list.data.data.stats.enabled)} enabled. Counts are since the start of the server.
                </p>
            )}
        </>
    );
}

function Actions({ hook, again }: { hook: Webhook; again: () => void }) {
    return (
        <span class="row-actions">
            {canTest() && <Button kind="quiet" icon="play" label={`Test ${hook.url}`} onClick={() => void test(hook, again)} />}
            <Menu
                label={`Actions on ${hook.url}`}
                items={[
                    { name: hook.enabled ? "Disable" : "Enable", run: () => void setEnabled(hook, !hook.enabled, again) },
                    { name: "Remove", danger: true, run: () => void remove(hook, again) },
                ]}
            />
        </span>
    );
}

function Editor({ done }: { done: () => void }) {
    const [url, setUrl] = useState("");
    const [queue, setQueue] = useState("");
    const [secret, setSecret] = useState("");
    const [events, setEvents] = useState<readonly string[]>(["job.completed", "job.failed"]);
    const [error, setError] = useState("");
    const submit = async (event: Event) => {
        event.preventDefault();
        try {
            await ask("AddWebhook", { url, events, ...(queue ? { queue } : {}), ...(secret ? { secret } : {}) });
            say(`Events are posted to ${url}`);
            done();
        } catch (refused) {
            setError((refused as Refused).message);
        }
    };
    return (
        <Card title="New webhook">
            <form class="editor" onSubmit={(event) => void submit(event)}>
                <div class="editor-fields editor-wide">
                    <label class="row-field double">
                        <span>URL</span>
                        <input class="field" type="url" name="url" required placeholder="https://example.org/hook" value={url} autocomplete="off" onInput={(event) => setUrl(event.currentTarget.value)} />
                    </label>
                    <label class="row-field">
                        <span>Queue</span>
                        <QueueField label="Queue of the events" placeholder="All queues" value={queue} onChange={setQueue} />
                    </label>
                    <label class="row-field">
                        <span>Signing secret</span>
                        <input class="field" type="password" name="secret" placeholder="none" value={secret} autocomplete="new-password" onInput={(event) => setSecret(event.currentTarget.value)} />
                    </label>
                    <fieldset class="checks editor-wide">
                        <legend>Events; choose none to get all</legend>
                        {EVENTS.map((name) => (
                            <label class="check" key={name}>
                                <input
                                    type="checkbox"
                                    checked={events.includes(name)}
                                    onChange={(event) => setEvents(event.currentTarget.checked ? [...events, name] : events.filter((one) => one !== name))}
                                />
                                {name}
                            </label>
                        ))}
                    </fieldset>
                </div>
                {error && (
                    <p class="problem editor-wide" role="alert">
                        {error}
                    </p>
                )}
                <div class="buttons editor-wide">
                    <Button type="submit" kind="primary">
                        Add the webhook
                    </Button>
                    <Button onClick={done}>Cancel</Button>
                </div>
            </form>
        </Card>
    );
}
