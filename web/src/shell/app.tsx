// What is around every page: navigation, the state of the connection, and the page itself once it is loaded.

import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { timeForm, zone } from "../lib/clock";
import { config } from "../lib/config";
import { duration } from "../lib/format";
import { may } from "../lib/rights";
import { path } from "../lib/router";
import { behind, connect, connection, logout, retryAt, trouble, who } from "../lib/server";
import { Button } from "../parts/basics";
import { Dialogs } from "../parts/dialog";
import { Icon } from "../parts/icons";
import { type Page, type PageProps, type Values, find, isOffered, pages } from "../pages";
import { Login } from "./login";
import { openPalette, Palette } from "./palette";
import { choice, theme } from "./theme";
import "./keys";

const menuOpen = signal(false);

export function App() {
    const link = connection.value;
    if (link === "login") return <Login />;
    if (link === "refused") return <Refusal />;
    return (
        <div class="app">
            <a class="skip" href="#main" onClick={skip}>
                Skip to the page
            </a>
            <Navigation />
            <div class="page">
                <TopBar />
                <Away />
                <main id="main" tabIndex={-1}>
                    <Content />
                </main>
            </div>
            <Palette />
            <Dialogs />
        </div>
    );
}

function skip(event: MouseEvent): void {
    event.preventDefault();
    document.getElementById("main")?.focus();
}

function Refusal() {
    return (
        <main class="alone" id="main">
            <div class="card alone-card">
                <h1>This page may not ask the server</h1>
                <p>{trouble.value}</p>
                <p class="note">
                    On a server without tokens, list the name of this host in <code>ALLOWED_HOSTS</code>, or open the page by an
                    address.
                </p>
                <Button kind="primary" onClick={() => void connect()}>
                    Try again
                </Button>
            </div>
        </main>
    );
}

function Navigation() {
    const now = find(path.value)?.page;
    const section = (page: Page) => page === now || (page.path !== "" && now?.path.startsWith(`${page.path}/`));
    useEffect(() => {
        menuOpen.value = false;
    }, [path.value]);
    return (
        <nav class={`nav ${menuOpen.value ? "is-open" : ""}`} aria-label="Pages" id="nav">
            <a class="brand" href=".">
                <svg width="26" height="26" viewBox="0 0 32 32" aria-hidden="true">
                    <rect width="32" height="32" rx="9" class="brand-back" />
                    <path d="M8 11h16M8 16h11M8 21h6" class="brand-line" />
                </svg>
                corq
            </a>
            {config.label && <Label />}
            <ul>
                {pages
                    .filter((page) => page.nav && isOffered(page))
                    .map((page) => (
                        <li key={page.path}>
                            <a href={page.path || "."} aria-current={section(page) ? "page" : undefined}>
                                <Icon name={page.icon} />
                                {page.nav}
                            </a>
                        </li>
                    ))}
            </ul>
            <span class="grow" />
            <Identity />
        </nav>
    );
}

/** Which environment this is. */
function Label() {
    return (
        <span class="label" style={config.color ? { borderColor: config.color } : undefined}>
            {config.label}
        </span>
    );
}

function Identity() {
    const own = who.value;
    if (!own) return null;
    return (
        <div class="identity">
            <span>
                {own.by === "nothing" ? "No tokens are set" : `Role ${own.role}`}
                {own.readOnly && ", read only"}
                {own.queues && <small title={own.queues.join(", ")}>queues {own.queues.join(", ")}</small>}
            </span>
            {own.by === "session" && <Button kind="quiet" icon="logout" label="Log out" onClick={() => void logout()} />}
        </div>
    );
}

function TopBar() {
    const [next, name] = theme.value === "dark" ? (["light", "sun"] as const) : (["dark", "moon"] as const);
    return (
        <header class="top">
            <span class="only-small">
                <Button
                    kind="quiet"
                    icon="menu"
                    label="Pages"
                    expanded={menuOpen.value}
                    onClick={() => (menuOpen.value = !menuOpen.value)}
                />
            </span>
            <button type="button" class="finder" onClick={() => openPalette()}>
                <Icon name="search" size={16} />
                <span>Go to a queue, a job, a page</span>
                <kbd>Ctrl K</kbd>
            </button>
            <span class="grow" />
            {config.label && (
                <span class="only-small">
                    <Label />
                </span>
            )}
            <Status />
            <button
                type="button"
                class="button quiet"
                title="Show times as dates or by how long ago (t)"
                onClick={() => (timeForm.value = timeForm.value === "relative" ? "absolute" : "relative")}
            >
                <Icon name="clock" size={16} />
                <span class="roomy">{timeForm.value === "relative" ? "Relative" : "Absolute"}</span>
            </button>
            <button
                type="button"
                class="button quiet roomy"
                title="Show times in UTC or in the zone of this browser (z)"
                onClick={() => (zone.value = zone.value === "utc" ? "local" : "utc")}
            >
                {zone.value === "utc" ? "UTC" : "Local"}
            </button>
            <Button kind="quiet" icon={name} label={`Use the ${next} colours`} onClick={() => (choice.value = next)} />
        </header>
    );
}

function Status() {
    const link = connection.value;
    const late = behind.value;
    const [tone, text] =
        link !== "open"
            ? (["bad", link === "connecting" ? "connecting" : "disconnected"] as const)
            : late > 0
              ? (["warn", `behind ${duration(Math.round(late / 1000) * 1000)}`] as const)
              : (["good", "live"] as const);
    return (
        <span class={`status ${link === "connecting" ? "" : tone}`} data-status={text.split(" ")[0]}>
            <i />
            {text}
        </span>
    );
}

/** Says that what is shown is old. */
function Away() {
    const [, again] = useState(0);
    const isAway = connection.value === "away";
    useEffect(() => {
        if (!isAway) return;
        const timer = setInterval(() => again((count) => count + 1), 500);
        return () => clearInterval(timer);
    }, [isAway]);
    if (!isAway) return null;
    const wait = Math.max(0, Math.ceil((retryAt.value - Date.now()) / 1000));
    return (
        <section class="away" aria-label="Connection">
            <Icon name="warning" size={16} />
            <span>
                {trouble.value}. The page shows the last known state; the next try is {wait > 0 ? `in ${wait} s` : "under way"}.
            </span>
            <Button onClick={() => void connect()}>Try now</Button>
        </section>
    );
}

const loaded = new Map<string, ComponentType<PageProps>>();

function Content() {
    const found = find(path.value);
    const [, again] = useState(0);
    const [failed, setFailed] = useState<Page | null>(null);
    const page = found?.page;
    const Own = page && loaded.get(page.path);
    const title = found ? found.page.title(found.values) : "Not found";
    useEffect(() => {
        document.title = `${title} · ${config.label ? `${config.label} · ` : ""}corq`;
    }, [title]);
    useEffect(() => {
        if (!page || Own) return;
        setFailed(null);
        page.load().then(
            (module) => {
                loaded.set(page.path, module.default);
                again((count) => count + 1);
            },
            // After an update the server has other files: this page is too old to load them.
            () => setFailed(page),
        );
    }, [page, Own]);
    if (!found || !page) return <NotFound />;
    if (connection.value === "connecting" && !who.value) return <p class="empty">Connecting…</p>;
    if (who.value && !may(page.needs)) return <Forbidden />;
    if (failed === page) {
        return (
            <div class="empty">
                <p>This page could not be loaded. The server may have been updated.</p>
                <Button kind="primary" onClick={() => window.location.reload()}>
                    Reload
                </Button>
            </div>
        );
    }
    if (!Own) return <p class="empty">Loading…</p>;
    return <Own key={key(page, found.values)} values={found.values} />;
}

/** Another queue is another page, with nothing left of the one before. */
function key(page: Page, values: Values): string {
    return [page.path, ...Object.values(values)].join("\n");
}

function NotFound() {
    return (
        <>
            <h1>There is no such page</h1>
            <p>
                <a href=".">To the overview</a>
            </p>
        </>
    );
}

function Forbidden() {
    return (
        <>
            <h1>Not for this token</h1>
            <p>
                The token of this page has the role <b>{who.value?.role}</b>, which may not look at queues and jobs. Log in with
                another one.
            </p>
        </>
    );
}
