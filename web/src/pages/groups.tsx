// Groups of a queue: what waits and runs in each, their limits and weights, and holding one back.

import { count, duration, many, short } from "../lib/format";
import { useQuery } from "../lib/hooks";
import { limitsText } from "../lib/queue-actions";
import { may } from "../lib/rights";
import { filter, link, setFilters } from "../lib/router";
import { Button, Card, Empty, FilterField, Problem, Tile } from "../parts/basics";
import { act } from "../parts/dialog";
import { useList } from "../parts/lists";
import { Menu } from "../parts/menu";
import { QueueField } from "../parts/queue-field";
import { type Column, Table } from "../parts/table";

interface Group {
    id: string;
    count: number;
    active: number;
    paused: boolean;
    weight: number;
    concurrency: number | null;
    limit: { max: number; duration: number } | null;
    heldFor: number | null;
}

const LIMIT = 500;
const MAX = 9_007_199_254_740_991;

export default function Groups() {
    const queue = filter("queue");
    return (
        <>
            <div class="head">
                <h1>Groups</h1>
                <span class="grow" />
                <QueueField value={queue} placeholder={may("server") ? "All queues" : "Queue"} onChange={(value) => setFilters({ queue: value || null })} />
            </div>
            {queue ? <Own queue={queue} /> : <ByQueue />}
        </>
    );
}

interface QueueRow {
    name: string;
    groups: number;
    waiting: number;
    active: number;
}

const QUEUES: readonly Column<QueueRow>[] = [
    {
        key: "name",
        label: "Queue",
        cell: (row) => (
            <a class="name" href={link(["groups"], { queue: row.name })}>
                {row.name}
            </a>
        ),
    },
    { key: "groups", label: "Groups", width: "110px", right: true, cell: (row) => count(row.groups) },
    { key: "waiting", label: "Waiting", width: "110px", right: true, cell: (row) => short(row.waiting) },
    { key: "active", label: "Active", width: "110px", right: true, cell: (row) => short(row.active) },
];

function ByQueue() {
    const fields = { sort: "waiting", limit: 500, fields: ["groups", "waiting", "active"] };
    const list = useList<QueueRow>("ListQueues", may("server") ? fields : null, "queues", (row) => row.name, 5000, { keep: (row) => row.groups > 0 });
    if (!may("server")) return <Empty>Choose a queue to see its groups</Empty>;
    return (
        <Card class="flush" title="Queues with groups">
            {list.error && <Problem error={list.error} />}
            <Table
                label="Queues with groups"
                tall
                columns={QUEUES}
                rows={list.rows}
                keyOf={(row) => row.name}
                more={list.more}
                onEnd={list.onEnd}
                onSeen={list.onSeen}
                empty={!list.loaded ? "Loading…" : list.more ? <Button onClick={list.onEnd}>Look further</Button> : "No queue has groups: a job has one by its groupId"}
            />
        </Card>
    );
}

function Own({ queue }: { queue: string }) {
    const wanted = filter("find");
    const list = useList<Group>("GetGroups", { queue, limit: LIMIT }, "groups", (group) => group.id, 2000, {
        keep: (group) => group.id.includes(wanted),
        keptBy: wanted,
        nextOf: (groups) => (groups.length === LIMIT ? groups[LIMIT - 1]!.id : null),
    });
    const jobs = useQuery<{ data: { count: number } }>("GetGroupsJobsCount", { queue }, 2000);
    const paused = list.rows.filter((group) => group.paused).length;
    const held = list.rows.filter((group) => group.heldFor !== null).length;
    const columns: readonly Column<Group>[] = [
        {
            key: "id",
            label: "Group",
            cell: (group) => (
                <>
                    <a class="name" title={group.id} href={link(["queues", queue], { group: group.id })}>
                        {group.id}
                    </a>{" "}
                    {group.paused && <span class="tag warn">paused</span>} {group.heldFor !== null && <span class="tag warn">held for {duration(group.heldFor)}</span>}
                </>
            ),
        },
        { key: "count", label: "Waiting", width: "92px", right: true, cell: (group) => <span class={group.count ? "" : "zero"}>{count(group.count)}</span> },
        { key: "active", label: "Active", width: "84px", right: true, cell: (group) => <span class={group.active ? "" : "zero"}>{count(group.active)}</span> },
        { key: "weight", label: "Weight", width: "76px", right: true, wide: true, cell: (group) => count(group.weight) },
        {
            key: "limits",
            label: "Limits",
            width: "200px",
            wide: true,
            cell: (group) => limitsText({ rateLimit: group.limit, concurrencyLimit: group.concurrency }) || <span class="zero">none</span>,
        },
        ...(may("change") ? [{ key: "actions", label: "Actions", width: "98px", right: true, cell: (group: Group) => <Actions queue={queue} group={group} again={list.again} /> }] : []),
    ];
    return (
        <>
            <section class="tiles" aria-label="Groups in figures">
                <Tile label="Groups" value={`${count(list.rows.length)}${list.more ? "+" : ""}`} />
                <Tile label="Waiting jobs in groups" tone="waiting" value={short(jobs.data?.data.count)} />
                <Tile label="Active" tone="active" value={short(list.rows.reduce((sum, group) => sum + group.active, 0))} />
                <Tile label="Paused" tone={paused ? "warn" : "good"} value={count(paused)} />
                <Tile label="Held" tone={held ? "warn" : "good"} value={count(held)} />
            </section>
            <Card class="flush" title={`Groups of ${queue}`} actions={<FilterField label="Group has" value={wanted} onChange={(value) => setFilters({ find: value || null })} />}>
                {list.error && <Problem error={list.error} />}
                <Table
                    label={`Groups of ${queue}`}
                    tall
                    columns={columns}
                    rows={list.rows}
                    keyOf={(group) => group.id}
                    rowHeight={42}
                    more={list.more}
                    onEnd={list.onEnd}
                    onSeen={list.onSeen}
                    empty={!list.loaded ? "Loading…" : list.more ? <Button onClick={list.onEnd}>Look further</Button> : "No group"}
                />
            </Card>
        </>
    );
}

function Actions({ queue, group, again }: { queue: string; group: Group; again: () => void }) {
    const own = { queue, groupId: group.id };
    const named = `the group ${group.id} of ${queue}`;
    const change = (title: string, text: string, fields: { name: string; label: string; value: string; max: number; min?: number }[], run: (answers: Record<string, string>) => readonly [string, object] | null) =>
        void act({
            question: { title: `${title} of ${group.id}`, text, action: "Set", fields: fields.map((field) => ({ min: 1, type: "number" as const, ...field })) },
            run,
            said: () => `The group ${group.id} is changed`,
            after: again,
        });
    return (
        <span class="row-actions">
            {group.paused ? (
                <Button
                    kind="quiet"
                    icon="play"
                    label={`Resume ${group.id}`}
                    onClick={() => void act({ run: () => ["ResumeGroup", own], said: () => `${group.id} is resumed`, after: again })}
                />
            ) : (
                <Button
                    kind="quiet"
                    icon="pause"
                    label={`Pause ${group.id}`}
                    onClick={() =>
                        void act({
                            question: { title: `Pause ${group.id}?`, text: `The ${many(group.count, "job")} that wait in ${named} are not given to workers until it is resumed. Other groups go on.`, action: `Pause ${group.id}` },
                            run: () => ["PauseGroup", own],
                            said: () => `${group.id} is paused`,
                            after: again,
                        })
                    }
                />
            )}
            <Menu
                label={`Limits of ${group.id}`}
                items={[
                    {
                        name: "Rate limit",
                        run: () =>
                            change(
                                "Rate limit",
                                "At most this many jobs of the group are delivered to workers in each interval. Leave the number empty to remove the limit.",
                                [
                                    { name: "max", label: "Jobs", max: MAX, value: group.limit ? String(group.limit.max) : "" },
                                    { name: "duration", label: "Interval in ms", max: MAX, value: String(group.limit?.duration ?? 1000) },
                                ],
                                ({ max, duration: span }) =>
                                    max ? ["SetGroupRateLimit", { ...own, max: Number(max), duration: Number(span) || 1000 }] : ["RemoveGroupRateLimit", own],
                            ),
                    },
                    {
                        name: "Concurrency",
                        run: () =>
                            change(
                                "Concurrency",
                                "At most this many jobs of the group are active at a time. Leave the number empty to remove the limit.",
                                [{ name: "limit", label: "Active jobs", max: MAX, value: group.concurrency === null ? "" : String(group.concurrency) }],
                                ({ limit }) => (limit ? ["SetGroupConcurrency", { ...own, concurrency: Number(limit) }] : ["RemoveGroupConcurrency", own]),
                            ),
                    },
                    {
                        name: "Weight",
                        run: () =>
                            change("Weight", "A group of weight 3 gets three jobs for each job of a group of weight 1.", [{ name: "weight", label: "Weight", max: 1000, value: String(group.weight) }], ({ weight }) =>
                                weight ? ["SetGroupWeight", { ...own, weight: Number(weight) }] : null,
                            ),
                    },
                    {
                        name: "Hold for a while",
                        run: () =>
                            change("Hold", `The ${many(group.count, "job")} that wait in ${named} are not given to workers for this long.`, [{ name: "seconds", label: "Seconds", max: 31_536_000, value: "60" }], ({ seconds }) =>
                                seconds ? ["RateLimitGroup", { ...own, duration: Math.round(Number(seconds) * 1000) }] : null,
                            ),
                    },
                ]}
            />
        </span>
    );
}
