// Addresses of the page: its path below the base, and filters in its query. Every view has an address that can be sent on.

import { computed, signal } from "@preact/signals";
import { base } from "./config";

export interface Place {
    /** Below the base, without a slash at either end; its segments are still escaped. */
    path: string;
    query: URLSearchParams;
}

function here(): Place {
    const { pathname, search } = window.location;
    const path = pathname.startsWith(base.pathname) ? pathname.slice(base.pathname.length) : "";
    return { path: path.replace(/\/+$/, ""), query: new URLSearchParams(search) };
}

export const place = signal<Place>(here());
export const path = computed(() => place.value.path);

window.addEventListener("popstate", () => (place.value = here()));

/** The address of a page: segments are escaped, empty filters left out. */
export function link(segments: readonly string[], filters: Record<string, string | null | undefined> = {}): string {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(filters)) if (value) query.set(name, value);
    const text = query.toString();
    return segments.map(encodeURIComponent).join("/") + (text ? `?${text}` : "") || ".";
}

export function navigate(to: string, how: "push" | "replace" = "push"): void {
    const url = new URL(to, base);
    if (url.href === window.location.href) return;
    window.history[how === "push" ? "pushState" : "replaceState"](null, "", url);
    const before = place.value.path;
    place.value = here();
    if (before !== place.value.path) {
        window.scrollTo(0, 0);
        // Who hears the page hears the new one from its heading on.
        queueMicrotask(() => document.getElementById("main")?.focus({ preventScroll: true }));
    }
}

/** Changes filters of this page; null takes one away. */
export function setFilters(filters: Record<string, string | null>): void {
    const query = new URLSearchParams(place.value.query);
    for (const [name, value] of Object.entries(filters)) {
        if (value) query.set(name, value);
        else query.delete(name);
    }
    const text = query.toString();
    navigate((place.value.path || ".") + (text ? `?${text}` : ""), "replace");
}

/** A filter of this page. */
export function filter(name: string): string {
    return place.value.query.get(name) ?? "";
}

/** Links within the page lead there without loading it again. */
document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const anchor = (event.target as Element | null)?.closest?.("a");
    if (!anchor || anchor.target || anchor.hasAttribute("download")) return;
    const url = new URL(anchor.href, base);
    if (url.origin !== base.origin || !url.pathname.startsWith(base.pathname)) return;
    event.preventDefault();
    navigate(url.href);
});
