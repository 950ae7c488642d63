// One webhook: what it gets, and how its last deliveries went.

import { count, duration, many } from "../lib/format";
import { useQuery } from "../lib/hooks";
import { knows } from "../lib/known";
import { may } from "../lib/rights";
import { navigate } from "../lib/router";
import { Button, Card, Empty, JobLink, Problem, QueueLink, Tile, Time } from "../parts/basics";
import { Menu } from "../parts/menu";
import { type Column, Table } from "../parts/table";
import { type Delivery, type Webhook, canTest, remove, setEnabled, test } from "../parts/webhook-actions";
import type { PageProps } from ".";

const COLUMNS: readonly Column<Delivery>[] = [
    { key: "when", label: "When", width: "130px", cell: (one) => <Time at={one.timestamp} /> },
    {
        key: "event",
        label: "Event",
        width: "170px",
        cell: (one) => (
            <>
                {one.event} {one.test && <span class="tag">test</span>}
            </>
        ),
    },
    { key: "job", label: "Job", width: "160px", wide: true, cell: (one) => (one.test ? <span class="zero">–</span> : <JobLink id={one.jobId} />) },
    { key: "attempt", label: "Attempt", width: "80px", right: true, wide: true, cell: (one) => count(one.attempt) },
    {
        key: "outcome",
        label: "Outcome",
        cell: (one) => (
            <span class="state" title={one.error ?? ""}>
                <i class={`dot ${one.delivered ? "good" : "bad"}`} />
                {one.delivered ? `delivered, ${one.status}` : <span class="error-text">{one.error ?? `status ${one.status}`}</span>}
            </span>
        ),
    },
    { key: "took", label: "Took", width: "90px", right: true, wide: true, cell: (one) => duration(one.duration) },
];

export default function WebhookPage({ values }: PageProps) {
    const id = values["id"]!;
    const list = useQuery<{ data: { webhooks: Webhook[] } }>("ListWebhooks", {}, 3000);
    const looks = useQuery<{ data: { since: number; deliveries: Delivery[] } }>("WebhookDeliveries", knows("TestWebhook") ? { id } : null, 3000);
    const hook = list.data?.data.webhooks.find((one) => one.id === id);
    if (list.error) return <Problem error={list.error} />;
    if (!hook) return <Empty>{list.data ? "There is no webhook of that id" : "Loading…"}</Empty>;
    const again = () => {
        list.again();
        looks.again();
    };
    const own = looks.data?.data;
    return (
        <>
            <div class="head">
                <span class="crumb">
                    <a href="webhooks">Webhooks</a>
                </span>
                <h1>{hook.url}</h1>
                {!hook.enabled && <span class="tag warn">disabled</span>}
                <span class="grow" />
                {canTest() && (
                    <Button icon="play" kind="primary" onClick={() => void test(hook, again)}>
                        Post a sample
                    </Button>
                )}
                {may("change") && (
                    <Menu
                        label="Actions on this webhook"
                        text="Actions"
                        items={[
                            { name: hook.enabled ? "Disable" : "Enable", run: () => void setEnabled(hook, !hook.enabled, again) },
                            { name: "Remove", danger: true, run: () => void remove(hook, () => navigate("webhooks")) },
                        ]}
                    />
                )}
            </div>
            <section class="tiles" aria-label="The webhook in figures">
                <Tile label="Delivered" tone="good" value={count(hook.successCount)} note="events since the start" />
                <Tile label="Failed" tone={hook.failureCount ? "bad" : "good"} value={count(hook.failureCount)} note="after all attempts, or dropped" />
                <Tile label="Last sent" value={<Time at={hook.lastTriggered} />} />
            </section>
            <Card title="What it gets">
                <dl class="facts">
                    <dt>Events</dt>
                    <dd>{hook.events.length > 0 ? hook.events.join(", ") : "all"}</dd>
                    <dt>Queue</dt>
                    <dd>{hook.queue ? <QueueLink name={hook.queue} /> : "all queues"}</dd>
                    <dt>Added</dt>
                    <dd>
                        <Time at={hook.createdAt} />
                    </dd>
                    <dt>Id</dt>
                    <dd class="mono">{hook.id}</dd>
                </dl>
            </Card>
            {looks.error && <Problem error={looks.error} />}
            {own && (
                <Card class="flush" title="Last deliveries" note={<>{many(own.deliveries.length, "attempt")}, newest first; the last 50 since <Time at={own.since} /> are kept</>}>
                    <Table label="Last deliveries" columns={COLUMNS} rows={own.deliveries} keyOf={(one) => `${one.timestamp} ${one.event} ${one.jobId} ${one.attempt}`} empty="No delivery yet" />
                </Card>
            )}
        </>
    );
}
