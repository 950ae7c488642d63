// What an operator of the server looks at: what is worth a look, the settings and where each comes from, and who did what. For
// tokens of admins; a card whose command the server does not know is not there.

import { useMemo, useState } from "preact/hooks";
import { count, many } from "../lib/format";
import { useQuery } from "../lib/hooks";
import { filter, setFilters } from "../lib/router";
import { ask } from "../lib/server";
import { Button, Card, Choice, FilterField, Problem, QueueLink, Time } from "./basics";
import { say } from "./dialog";
import { type Column, Table } from "./table";

const isUnknown = (error: Error | null) => error?.message.startsWith("Unknown command") ?? false;

interface Finding {
    check: string;
    verdict: "ok" | "warning" | "wrong";
    found: string;
    advice: string;
}

const TONES = { ok: "good", warning: "warn", wrong: "bad" } as const;

const FINDINGS: readonly Column<Finding>[] = [
    {
        key: "check",
        label: "Check",
        width: "150px",
        cell: (finding) => (
            <span class="state">
                <i class={`dot ${TONES[finding.verdict]}`} />
                {finding.check}
            </span>
        ),
    },
    { key: "verdict", label: "Verdict", width: "88px", cell: (finding) => (finding.verdict === "ok" ? "" : <span class={`tag ${TONES[finding.verdict]}`}>{finding.verdict}</span>) },
    { key: "found", label: "Found", cell: (finding) => <span title={finding.advice || undefined}>{finding.found}</span> },
];

/** As `corq doctor` says it; what needs a look comes first. */
export function Findings() {
    const query = useQuery<{ data: { checks: Finding[] } }>("Doctor", {}, 30_000);
    if (isUnknown(query.error)) return null;
    const checks = query.data?.data.checks ?? [];
    const order = { wrong: 0, warning: 1, ok: 2 };
    const rows = [...checks].sort((one, other) => order[one.verdict] - order[other.verdict]);
    const advised = rows.filter((finding) => finding.advice);
    return (
        <Card class="flush" title="Findings" note={advised.length > 0 ? `${many(advised.length, "finding")} to act on; run corq doctor on the machine to test the disk too` : "nothing to act on"}>
            {query.error && <Problem error={query.error} />}
            {advised.length > 0 && (
                <ul class="alerts">
                    {advised.map((finding, index) => (
                        <li class={`alert ${TONES[finding.verdict]}`} key={index}>
                            <span>
                                <b>{finding.check}</b>: {finding.found}; {finding.advice}
                            </span>
                        </li>
                    ))}
                </ul>
            )}
            <Table label="Findings" columns={FINDINGS} rows={rows} keyOf={(finding) => finding.check + finding.found} empty="Loading…" />
        </Card>
    );
}

interface Setting {
    name: string;
    value: string | null;
    source: "flag" | "environment" | "file" | "default";
    place?: string | null;
    default: string | null;
    unit?: string | null;
}

const SETTINGS: readonly Column<Setting>[] = [
    { key: "name", label: "Setting", width: "270px", cell: (setting) => <span class="mono">{setting.name}</span> },
    {
        key: "value",
        label: "Value",
        cell: (setting) => (
            <span class="mono" title={setting.value ?? ""}>
                {setting.value ?? <span class="zero">–</span>} {setting.value !== null && setting.unit && <span class="dim">{setting.unit}</span>}
            </span>
        ),
    },
    { key: "source", label: "Source", width: "150px", wide: true, cell: (setting) => <span class={setting.source === "default" ? "dim" : ""} title={setting.place ?? ""}>{setting.source}</span> },
    { key: "default", label: "Default", width: "150px", wide: true, cell: (setting) => <span class="dim">{setting.default ?? "none"}</span> },
];

/** What the server runs with. Secrets are said to be set, never what they are. */
export function Settings() {
    const query = useQuery<{ data: { settings: Setting[] } }>("GetSettings", {}, 30_000);
    const [which, wanted] = [filter("settings"), filter("setting")];
    if (isUnknown(query.error)) return null;
    const all = query.data?.data.settings ?? [];
    const given = all.filter((setting) => setting.source !== "default").length;
    const rows = all.filter((setting) => (which === "all" || setting.source !== "default" || wanted !== "") && setting.name.toLowerCase().includes(wanted.toLowerCase()));
    return (
        <Card
            class="flush"
            title="Settings"
            note={query.data ? `${count(given)} of ${count(all.length)} are set` : ""}
            actions={
                <>
                    <FilterField label="Setting has" value={wanted} onChange={(value) => setFilters({ setting: value || null })} />
                    <Choice
                        label="Which settings"
                        value={which || "given"}
                        options={[
                            ["given", "Set"],
                            ["all", "All"],
                        ]}
                        onChange={(value) => setFilters({ settings: value === "given" ? null : value })}
                    />
                </>
            }
        >
            {query.error && <Problem error={query.error} />}
            <Table label="Settings" columns={SETTINGS} rows={rows} keyOf={(setting) => setting.name} rowHeight={32} empty={query.data ? "No setting is set; all have their defaults" : "Loading…"} />
        </Card>
    );
}

interface Entry {
    seq: number;
    time: string;
    face: string;
    peer?: string;
    role?: string;
    token?: string;
    command: string;
    queue?: string;
    about?: string;
    count?: number;
    outcome: string;
    repeated?: number;
}

interface Entries {
    entries: Entry[];
    next: number | null;
}

const PAGE = 100;

const AUDIT: readonly Column<Entry>[] = [
    { key: "time", label: "When", width: "150px", cell: (entry) => <Time at={Date.parse(entry.time)} /> },
    {
        key: "who",
        label: "Who",
        width: "190px",
        wide: true,
        cell: (entry) => (
            <span title={[entry.face, entry.peer].filter(Boolean).join(" ")}>
                {[entry.role, entry.token].filter(Boolean).join(" ") || entry.face} <span class="dim">{entry.peer ?? ""}</span>
            </span>
        ),
    },
    { key: "command", label: "Command", width: "150px", cell: (entry) => entry.command },
    { key: "queue", label: "Queue", width: "150px", wide: true, cell: (entry) => (entry.queue ? <QueueLink name={entry.queue} /> : null) },
    {
        key: "about",
        label: "Details",
        wide: true,
        cell: (entry) => (
            <span title={entry.about ?? ""}>
                {entry.about ?? ""} {entry.count !== undefined && <span class="dim">{count(entry.count)}</span>}
                {entry.repeated ? <span class="tag">{count(entry.repeated)} more times</span> : null}
            </span>
        ),
    },
    { key: "outcome", label: "Outcome", width: "110px", cell: (entry) => <span class={entry.outcome === "ok" ? "dim" : "tag warn"}>{entry.outcome}</span> },
];

/** Who did what, the newest first. */
export function Audit() {
    const query = useQuery<Entries>("AuditLog", { limit: PAGE }, 5000);
    const [older, setOlder] = useState<Entries | null>(null);
    const rows = useMemo(() => {
        const all = new Map<number, Entry>();
        for (const entry of [...(query.data?.entries ?? []), ...(older?.entries ?? [])]) all.set(entry.seq, entry);
        return [...all.values()].sort((one, other) => other.seq - one.seq);
    }, [query.data, older]);
    if (isUnknown(query.error)) return null;
    const next = older ? older.next : query.data?.next;
    const more = async () => {
        try {
            const { data } = await ask<Entries>("AuditLog", { limit: PAGE, before: next });
            setOlder((before) => ({ entries: [...(before?.entries ?? []), ...data.entries], next: data.next }));
        } catch (error) {
            say((error as Error).message, true);
        }
    };
    return (
        <Card
            class="flush"
            title="Audit log"
            note="changes beyond a single job, and logins"
            actions={next ? <Button kind="quiet" onClick={() => void more()}>Older</Button> : undefined}
        >
            {query.error && <Problem error={query.error} />}
            <Table label="Audit log" columns={AUDIT} rows={rows} keyOf={(entry) => String(entry.seq)} rowHeight={34} empty={query.data ? "Nothing yet" : query.error ? "" : "Loading…"} />
        </Card>
    );
}
