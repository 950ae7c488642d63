// Small things of which pages are made.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { now, timeForm } from "../lib/clock";
import { absolute, relative } from "../lib/format";
import { link } from "../lib/router";
import type { Refused } from "../lib/server";
import { Icon, type IconName } from "./icons";

/** A part of a page with a heading. */
export function Card(props: {
    title?: string;
    note?: ComponentChildren;
    actions?: ComponentChildren;
    class?: string;
    children: ComponentChildren;
}) {
    return (
        <section class={`card ${props.class ?? ""}`}>
            {(props.title || props.actions) && (
                <header class="card-head">
                    <h2>{props.title}</h2>
                    {props.note && <span class="note">{props.note}</span>}
                    <span class="grow" />
                    {props.actions}
                </header>
            )}
            {props.children}
        </section>
    );
}

/** A figure with its name. */
export function Tile(props: {
    label: string;
    value: ComponentChildren;
    note?: ComponentChildren;
    tone?: string;
    title?: string;
    href?: string;
    active?: boolean;
    children?: ComponentChildren;
}) {
    const inner = (
        <>
            <span class="tile-label">
                {props.tone && <i class={`dot ${props.tone}`} />}
                {props.label}
            </span>
            <span class="tile-value" title={props.title}>
                {props.value}
            </span>
            {props.note && <span class="tile-note">{props.note}</span>}
            {props.children}
        </>
    );
    if (props.href === undefined) return <div class="tile">{inner}</div>;
    return (
        <a class={`tile ${props.active ? "is-active" : ""}`} href={props.href} aria-current={props.active ? "true" : undefined}>
            {inner}
        </a>
    );
}

const STATES: Record<string, string> = {
    "waiting-children": "waits for others",
    failed: "failed",
    dlq: "dead",
};

/** The state of a job. */
export function State({ state }: { state: string }) {
    return (
        <span class="state">
            <i class={`dot ${state}`} />
            {STATES[state] ?? state}
        </span>
    );
}

/** A time as the reader has chosen to see it, with the other form behind it. */
export function Time({ at }: { at: number | null | undefined }) {
    if (at === null || at === undefined) return <span class="dim">–</span>;
    const [one, other] = [relative(at, now.value), absolute(at)];
    const [shown, title] = timeForm.value === "relative" ? [one, other] : [other, one];
    return (
        <time dateTime={new Date(at).toISOString()} title={title}>
            {shown}
        </time>
    );
}

export function Button(props: {
    icon?: IconName;
    kind?: "plain" | "primary" | "danger" | "quiet";
    label?: string;
    disabled?: boolean;
    pressed?: boolean;
    expanded?: boolean;
    onClick?: (event: MouseEvent) => void;
    type?: "button" | "submit";
    children?: ComponentChildren;
}) {
    return (
        <button
            type={props.type ?? "button"}
            class={`button ${props.kind ?? "plain"} ${props.children ? "" : "is-icon"}`}
            aria-label={props.children ? undefined : props.label}
            title={props.label}
            disabled={props.disabled}
            aria-pressed={props.pressed}
            aria-expanded={props.expanded}
            onClick={props.onClick}
        >
            {props.icon && <Icon name={props.icon} size={16} />}
            {props.children}
        </button>
    );
}

/** Copies a text. */
export function Copy({ text, label, children }: { text: string | (() => string); label: string; children?: ComponentChildren }) {
    const [done, setDone] = useState(false);
    const copy = async () => {
        await copyText(typeof text === "string" ? text : text());
        setDone(true);
        setTimeout(() => setDone(false), 1500);
    };
    return (
        <Button kind="quiet" icon={done ? "check" : "copy"} label={done ? "Copied" : label} onClick={() => void copy()}>
            {children}
        </Button>
    );
}

/** Without TLS a browser has no clipboard for pages, but still lets them copy a selection. */
async function copyText(text: string): Promise<void> {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "offscreen";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
}

/** Why there is nothing to be seen. */
export function Problem({ error }: { error: Refused }) {
    return (
        <p class="problem">
            <Icon name="warning" />
            {error.code === "forbidden" ? `This token does not show it: ${error.message}` : error.message}
        </p>
    );
}

export function Empty({ children }: { children: ComponentChildren }) {
    return <p class="empty">{children}</p>;
}

/** One of several choices. */
export function Choice<T extends string>(props: {
    label: string;
    value: T;
    options: readonly (readonly [T, string])[];
    onChange: (value: T) => void;
}) {
    return (
        <div class="choice" role="group" aria-label={props.label}>
            {props.options.map(([value, name]) => (
                <button type="button" key={value} aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
                    {name}
                </button>
            ))}
        </div>
    );
}

/** A field that filters, some time after the last key. */
export function FilterField(props: {
    label: string;
    value: string;
    placeholder?: string;
    id?: string;
    onChange: (value: string) => void;
}) {
    const [typed, setTyped] = useState<string | null>(null);
    const [timer, setTimer] = useState(0);
    const change = (value: string) => {
        setTyped(value);
        clearTimeout(timer);
        setTimer(
            window.setTimeout(() => {
                props.onChange(value.trim());
                setTyped(null);
            }, 200),
        );
    };
    return (
        <input
            class="field"
            type="search"
            id={props.id}
            aria-label={props.label}
            placeholder={props.placeholder ?? props.label}
            value={typed ?? props.value}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => change(event.currentTarget.value)}
        />
    );
}

export function QueueLink({ name }: { name: string }) {
    return (
        <a class="name" href={link(["queues", name])} title={name}>
            {name}
        </a>
    );
}

export function JobLink({ id, children }: { id: string; children?: ComponentChildren }) {
    return (
        <a class="mono" href={link(["jobs", id])} title={id}>
            {children ?? shortId(id)}
        </a>
    );
}

/** Of an id that the server has made, the part that differs most. */
export function shortId(id: string): string {
    return /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-/.test(id) ? `${id.slice(0, 8)}…${id.slice(-6)}` : id;
}
