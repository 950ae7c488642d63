// The palette: one field that leads to every page, to queues by their names and to jobs by their ids, and offers what the
// page at hand can do.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { may } from "../lib/rights";
import { link, navigate } from "../lib/router";
import { ask, logout, who } from "../lib/server";
import { timeForm, zone } from "../lib/clock";
import { Icon, type IconName } from "../parts/icons";
import { isOffered, pages } from "../pages";
import { choice, theme } from "./theme";

export const paletteOpen = signal(false);

export function openPalette(): void {
    paletteOpen.value = true;
}

export interface Offer {
    name: string;
    note?: string;
    icon: IconName;
    words?: string;
    run: () => void;
}

/** What the page at hand offers. */
const offered = signal<readonly Offer[]>([]);

/** Offers something in the palette while a page is there. */
export function useOffers(offers: readonly Offer[]): void {
    useEffect(() => {
        offered.value = offers;
        return () => (offered.value = []);
    }, [offers.map((offer) => offer.name + offer.note).join("\n")]);
}

function standing(): Offer[] {
    const toPages = pages
        .filter((page) => page.nav && isOffered(page))
        .map((page) => ({
            name: page.nav!,
            note: page.key ? `g ${page.key}` : "",
            icon: page.icon,
            words: page.words ?? "",
            run: () => navigate(page.path || "."),
        }));
    const others: Offer[] = [
        {
            name: theme.value === "dark" ? "Light colours" : "Dark colours",
            note: "d",
            icon: theme.value === "dark" ? "sun" : "moon",
            words: "theme mode",
            run: () => (choice.value = theme.value === "dark" ? "light" : "dark"),
        },
        {
            name: "Colours of the system",
            icon: "sun",
            words: "theme mode automatic",
            run: () => (choice.value = "system"),
        },
        {
            name: timeForm.value === "relative" ? "Times as dates" : "Times by how long ago",
            note: "t",
            icon: "clock",
            run: () => (timeForm.value = timeForm.value === "relative" ? "absolute" : "relative"),
        },
        {
            name: zone.value === "utc" ? "Times of this browser's zone" : "Times in UTC",
            note: "z",
            icon: "clock",
            run: () => (zone.value = zone.value === "utc" ? "local" : "utc"),
        },
    ];
    if (who.value?.by === "session") others.push({ name: "Log out", icon: "logout", run: () => void logout() });
    return [...offered.value, ...toPages, ...others];
}

export function Palette() {
    return paletteOpen.value ? <Open /> : null;
}

function Open() {
    const dialog = useRef<HTMLDialogElement>(null);
    const [wanted, setWanted] = useState("");
    const [queues, setQueues] = useState<string[]>([]);
    const [at, setAt] = useState(0);
    useEffect(() => {
        const before = document.activeElement as HTMLElement | null;
        dialog.current?.showModal();
        return () => before?.focus?.();
    }, []);
    useEffect(() => {
        let live = true;
        const timer = setTimeout(() => {
            void queuesOf(wanted).then((names) => live && setQueues(names));
        }, 80);
        return () => {
            live = false;
            clearTimeout(timer);
        };
    }, [wanted]);
    const low = wanted.trim().toLowerCase();
    const matches = ({ name, words }: Offer) =>
        low.split(/\s+/).every((word) => name.toLowerCase().includes(word) || words?.includes(word));
    const items: Offer[] = [
        ...queues.map((name) => ({
            name,
            note: "queue",
            icon: "queues" as const,
            run: () => navigate(link(["queues", name])),
        })),
        ...standing().filter(matches),
        ...(low.length > 0
            ? [
                  {
                      name: wanted.trim(),
                      note: "job of this id",
                      icon: "job" as const,
                      run: () => navigate(link(["jobs", wanted.trim()])),
                  },
              ]
            : []),
    ];
    // What looks like an id most likely is one.
    if (/^[0-9a-f]{8}-[0-9a-f]{4}-/.test(low)) items.unshift(items.pop()!);
    const chosen = Math.min(at, items.length - 1);
    const close = () => (paletteOpen.value = false);
    const run = (item: Offer | undefined) => {
        if (!item) return;
        close();
        item.run();
    };
    const keys = (event: KeyboardEvent) => {
        const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
        if (step !== 0) {
            event.preventDefault();
            const next = (chosen + step + items.length) % items.length;
            setAt(next);
            document.getElementById(`offer-${next}`)?.scrollIntoView({ block: "nearest" });
        } else if (event.key === "Enter") {
            event.preventDefault();
            run(items[chosen]);
        }
    };
    return (
        <dialog
            ref={dialog}
            class="palette"
            aria-label="Go to"
            onClose={close}
            onClick={(event) => event.target === dialog.current && close()}
        >
            <div class="palette-field">
                <Icon name="search" />
                <input
                    type="text"
                    role="combobox"
                    aria-label="Queue, job id, page or action"
                    aria-expanded="true"
                    aria-controls="offers"
                    aria-activedescendant={items.length > 0 ? `offer-${chosen}` : undefined}
                    placeholder="Queue, job id, page or action"
                    autocomplete="off"
                    spellcheck={false}
                    value={wanted}
                    onInput={(event) => {
                        setWanted(event.currentTarget.value);
                        setAt(0);
                    }}
                    onKeyDown={keys}
                />
            </div>
            <ul id="offers" role="listbox" aria-label="Found">
                {items.map((item, index) => (
                    <li
                        key={`${item.note}${item.name}`}
                        id={`offer-${index}`}
                        role="option"
                        aria-selected={index === chosen}
                        onClick={() => run(item)}
                        onPointerMove={() => setAt(index)}
                    >
                        <Icon name={item.icon} size={16} />
                        <span class="offer-name">{item.name}</span>
                        <span class="note">{item.note}</span>
                    </li>
                ))}
            </ul>
        </dialog>
    );
}

/** Names of queues that begin with a text. */
async function queuesOf(prefix: string): Promise<string[]> {
    const wanted = prefix.trim();
    if (wanted === "" || !may("read")) return [];
    try {
        const { data } = await ask<{ queues: { name: string }[] }>("ListQueues", { prefix: wanted, limit: 8, fields: ["paused"] });
        return data.queues.map((queue) => queue.name);
    } catch {
        return [];
    }
}
