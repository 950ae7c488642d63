// The one connection of a tab: commands and their replies, and samples of what the server does. It comes back by itself,
// says when it is away or behind, and asks for nothing while the page is not seen.

import { batch, computed, effect, signal } from "@preact/signals";
import { ahead, now, serverNow } from "./clock";
import { base, root } from "./config";

export type Role = "admin" | "read" | "push" | "work";

export interface Who {
    role: Role;
    readOnly: boolean;
    by: "token" | "session" | "nothing";
    expiresAt?: number;
    queues?: string[];
}

export interface Stats {
    waiting: number;
    active: number;
    delayed: number;
    failed: number;
    completed: number;
    waitingChildren: number;
    uptime: number;
    totalPushed: number;
    totalPulled: number;
    totalCompleted: number;
    totalFailed: number;
    pushPerSec: number;
    pullPerSec: number;
}

export interface QueueSample {
    name: string;
    waiting: number;
    active: number;
    delayed: number;
    failed: number;
    paused: boolean;
    pushPerSec: number;
    completePerSec: number;
    failPerSec: number;
    waitP99: number | null;
    runP99: number | null;
}

export interface ShardRow {
    shard: number;
    load: number;
    turnsPerSec: number;
    connections: number;
    queues: number;
    waiting: number;
    active: number;
    delayed: number;
    pushPerSec: number;
    pullPerSec: number;
    longestTurn: { ms: number; command: string };
    longestTurns: { command: string; ms: number; steps: number }[];
    log: {
        diskBytes: number;
        liveBytes: number;
        unwrittenBytes: number;
        memoryBytes: number;
        segments: number;
        full: boolean;
        stalled: boolean;
    };
    mail: { stuckBatches: number; stalledBatches: number; notices: number; commandBytes: number };
}

export interface Sample {
    at: number;
    stats?: Stats;
    queues?: QueueSample[];
    shards?: ShardRow[];
}

export type Part = "stats" | "queues" | "shards";

/** connecting: for the first time; open; away: it is tried again; login: a token is needed; refused: it is no use. */
export type Link = "connecting" | "open" | "away" | "login" | "refused";

export const connection = signal<Link>("connecting");
/** Why there is no connection. */
export const trouble = signal("");
export const who = signal<Who | null>(null);
/** The last sample. */
export const sample = signal<Sample | null>(null);
/** How long a sample is overdue or an answer awaited, in ms; 0 if neither takes long. */
export const behind = signal(0);
/** When the next try begins. */
export const retryAt = signal(0);

export const visible = signal(!document.hidden);
document.addEventListener("visibilitychange", () => (visible.value = !document.hidden));

/** Whether pages may ask. */
export const ready = computed(() => connection.value === "open" && visible.value);

/** An answer that says no. */
export class Refused extends Error {
    readonly code: string;
    constructor(text: string, code: string) {
        super(text);
        this.code = code;
    }
}

export interface Reply<T> {
    data: T;
    /** As it came, for what must not be parsed. */
    text: string;
}

interface Waiting {
    resolve: (reply: Reply<unknown>) => void;
    reject: (error: Error) => void;
    /** Since when; never if the answer waits for others than the server. */
    at: number;
}

let socket: WebSocket | null = null;
let requests = 0;
let tries = 0;
let timer = 0;
const waiting = new Map<number, Waiting>();

/**
 * Sends a command. The promise fails with `Refused` if the server says no, or if the connection ends before its answer. `raw`
 * are further fields as JSON, which go out as they stand: numbers with all their digits.
 */
export function ask<T>(cmd: string, fields: object = {}, raw: Record<string, string> = {}): Promise<Reply<T>> {
    const open = socket;
    if (!open || connection.value !== "open") {
        return Promise.reject(new Refused("There is no connection to the server", "away"));
    }
    const reqId = ++requests;
    return new Promise((resolve, reject) => {
        waiting.set(reqId, { resolve: resolve as Waiting["resolve"], reject, at: cmd === "TestWebhook" ? Infinity : performance.now() });
        const further = Object.entries(raw).map(([name, text]) => `,${JSON.stringify(name)}:${text}`);
        open.send(JSON.stringify({ cmd, reqId, ...fields }).slice(0, -1) + further.join("") + "}");
    });
}

function hear(text: string): void {
    const message = JSON.parse(text) as Record<string, unknown>;
    const reqId = message["reqId"];
    if (typeof reqId === "number") {
        const own = waiting.get(reqId);
        waiting.delete(reqId);
        if (message["ok"] === true) own?.resolve({ data: message, text });
        else own?.reject(new Refused(String(message["error"]), String(message["code"])));
    } else if (message["type"] === "watch") {
        batch(() => {
            sample.value = message as unknown as Sample;
            heardAt = performance.now();
            const at = sample.value.at;
            // The way here takes time, so the largest is nearest.
            if (at - Date.now() > ahead.value || Math.abs(at - Date.now() - ahead.value) > 2000) {
                ahead.value = at - Date.now();
            }
            now.value = serverNow();
        });
    } else {
        for (const listener of listeners) listener(message);
    }
}

const listeners = new Set<(message: Record<string, unknown>) => void>();

/** Hears what the server sends without being asked, but for samples, until the returned function is called. */
export function listen(listener: (message: Record<string, unknown>) => void): () => void {
    listeners.add(listener);
    return () => listeners.delete(listener);
}

/** Connects, and keeps on trying. */
export async function connect(): Promise<void> {
    clearTimeout(timer);
    retryAt.value = 0;
    if (socket) return;
    let answer: Response;
    try {
        answer = await fetch(new URL("whoami", root), { cache: "no-store" });
    } catch {
        return tryAgain("The server does not answer");
    }
    const body = (await answer.json().catch(() => ({}))) as { data?: Who; error?: string };
    if (answer.status === 401) {
        batch(() => {
            who.value = null;
            connection.value = "login";
        });
        return;
    }
    if (answer.status === 403) {
        trouble.value = body.error ?? "The server does not let this page in";
        connection.value = "refused";
        return;
    }
    if (!answer.ok || !body.data) return tryAgain(body.error ?? `The server answers ${answer.status}`);
    who.value = body.data;
    open();
}

function open(): void {
    const url = new URL("ws", base);
    url.protocol = url.protocol.replace("http", "ws");
    const own = new WebSocket(url);
    socket = own;
    own.onopen = () => {
        tries = 0;
        batch(() => {
            trouble.value = "";
            connection.value = "open";
        });
        measure().catch(() => undefined);
    };
    own.onmessage = (event) => hear(event.data as string);
    own.onclose = () => {
        if (socket !== own) return;
        lose();
        tryAgain("The connection to the server has ended");
    };
}

function lose(): void {
    socket = null;
    watched = "";
    behind.value = 0;
    const all = [...waiting.values()];
    waiting.clear();
    const error = new Refused("The connection ended before the answer came: look whether it was done", "away");
    for (const { reject } of all) reject(error);
}

function tryAgain(why: string): void {
    const wait = Math.min(500 * 2 ** tries++, 15_000) * (0.75 + Math.random() / 2);
    batch(() => {
        trouble.value = why;
        connection.value = "away";
        retryAt.value = Date.now() + wait;
    });
    timer = window.setTimeout(() => void connect(), wait);
}

/** How far the clocks are apart. */
async function measure(): Promise<void> {
    const before = Date.now();
    const { data } = await ask<{ data: { time: number } }>("Ping");
    const after = Date.now();
    ahead.value = data.data.time - (before + after) / 2;
}

/** Begins a session. */
export async function login(token: string): Promise<void> {
    const answer = await fetch(new URL("login", base), {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ token }),
    });
    const body = (await answer.json().catch(() => ({}))) as { error?: string; code?: string };
    if (!answer.ok) throw new Refused(body.error ?? `The server answers ${answer.status}`, body.code ?? "");
    connection.value = "connecting";
    await connect();
}

export async function logout(): Promise<void> {
    await fetch(new URL("logout", base), { method: "POST" });
    const own = socket;
    lose();
    own?.close();
    batch(() => {
        who.value = null;
        sample.value = null;
        connection.value = "login";
    });
}

// What of samples is wanted by whom.
const wanted = signal<readonly Part[]>([]);
let watched = "";
let heardAt = 0;

/** Wants parts of samples until the returned function is called. */
export function watch(parts: readonly Part[]): () => void {
    wanted.value = [...wanted.value, ...parts];
    return () => {
        const rest = [...wanted.value];
        for (const part of parts) rest.splice(rest.indexOf(part), 1);
        wanted.value = rest;
    };
}

effect(() => {
    const own = who.value;
    const allowed = own && own.role !== "push" && own.role !== "work";
    // A token that is limited to queues sees nothing but these.
    const mayBe = (part: Part) => allowed && (!own.queues || part === "queues");
    const parts = ready.value ? [...new Set(wanted.value)].filter(mayBe).sort() : [];
    if (connection.value !== "open") return;
    const next = parts.join();
    if (next === watched) return;
    watched = next;
    heardAt = performance.now();
    const sent = next ? ask("Watch", { what: parts, every: EVERY_MS, top: 50 }) : ask("Unwatch");
    sent.catch(() => undefined);
});

/** How often samples come. */
export const EVERY_MS = 1000;

setInterval(() => {
    const at = performance.now();
    // They are in the order in which they were sent.
    const [first] = waiting.values();
    const late = Math.max(watched ? at - heardAt - EVERY_MS : 0, first ? at - first.at : 0);
    behind.value = ready.value && late > 3 * EVERY_MS ? late : 0;
}, 500);
