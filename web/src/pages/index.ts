// The table of pages. A page is one module of this folder with a component as its default export, and one row here: its
// address, its title, how it is found, and what a token must be allowed so that it is offered.
//
// `path` has one segment that begins with a colon for each value in the address. Modules are loaded when a page is first
// opened.

import type { ComponentType } from "preact";
import { type Command, knows } from "../lib/known";
import { type Right, may } from "../lib/rights";
import type { IconName } from "../parts/icons";

export type Values = Record<string, string>;

export interface PageProps {
    values: Values;
}

export interface Page {
    path: string;
    title: (values: Values) => string;
    icon: IconName;
    /** Its place in the navigation and in the palette; one without is reached by links. */
    nav?: string;
    /** Further words by which the palette finds it. */
    words?: string;
    /** The key behind `g`. */
    key?: string;
    needs: Right;
    /** A command without which there is no such page. */
    command?: Command;
    load: () => Promise<{ default: ComponentType<PageProps> }>;
}

export const pages: readonly Page[] = [
    {
        path: "",
        title: () => "Overview",
        icon: "overview",
        nav: "Overview",
        words: "home rates shards cores alerts heat map",
        key: "o",
        needs: "read",
        load: () => import("./overview"),
    },
    {
        path: "queues",
        title: () => "Queues",
        icon: "queues",
        nav: "Queues",
        words: "list pause limits",
        key: "q",
        needs: "read",
        load: () => import("./queues"),
    },
    {
        path: "queues/:queue",
        title: ({ queue }) => queue ?? "",
        icon: "queues",
        needs: "read",
        load: () => import("./queue"),
    },
    {
        path: "jobs/:id",
        title: ({ id }) => `Job ${id}`,
        icon: "job",
        needs: "read",
        load: () => import("./job"),
    },
    {
        path: "dead",
        title: () => "Dead letters",
        icon: "dead",
        nav: "Dead letters",
        words: "dlq failed errors retry remove bulk tasks",
        key: "x",
        needs: "read",
        load: () => import("./dead"),
    },
    {
        path: "search",
        title: () => "Search",
        icon: "search",
        nav: "Search",
        words: "find payload text path value",
        key: "s",
        needs: "read",
        load: () => import("./search"),
    },
    {
        path: "flows",
        title: () => "Flows",
        icon: "flow",
        nav: "Flows",
        words: "graph parents children dependencies",
        key: "f",
        needs: "read",
        load: () => import("./flows"),
    },
    {
        path: "flows/:id",
        title: ({ id }) => `Flow of ${id}`,
        icon: "flow",
        needs: "read",
        load: () => import("./flow"),
    },
    {
        path: "schedules",
        title: () => "Schedules",
        icon: "cron",
        nav: "Schedules",
        words: "cron repeat timer next runs",
        key: "c",
        needs: "read",
        load: () => import("./schedules"),
    },
    {
        path: "schedules/:name",
        title: ({ name }) => `Schedule ${name}`,
        icon: "cron",
        needs: "server",
        load: () => import("./schedule"),
    },
    {
        path: "workers",
        title: () => "Workers",
        icon: "worker",
        nav: "Workers",
        words: "hosts silent slots",
        key: "w",
        needs: "read",
        load: () => import("./workers"),
    },
    {
        path: "groups",
        title: () => "Groups",
        icon: "group",
        nav: "Groups",
        words: "tenants fair limits weight",
        key: "u",
        needs: "read",
        load: () => import("./groups"),
    },
    {
        path: "webhooks",
        title: () => "Webhooks",
        icon: "webhook",
        nav: "Webhooks",
        words: "http post deliveries",
        key: "b",
        needs: "server",
        load: () => import("./webhooks"),
    },
    {
        path: "webhooks/:id",
        title: () => "Webhook",
        icon: "webhook",
        needs: "server",
        load: () => import("./webhook"),
    },
    {
        path: "events",
        title: () => "Live events",
        icon: "events",
        nav: "Live events",
        words: "stream tail log",
        key: "e",
        needs: "read",
        command: "Subscribe",
        load: () => import("./events"),
    },
    {
        path: "server",
        title: () => "Server",
        icon: "server",
        nav: "Server",
        words: "shards cores storage disk log metrics prometheus settings connections memory",
        key: "r",
        needs: "server",
        load: () => import("./server"),
    },
    {
        path: "help",
        title: () => "Shortcuts and help",
        icon: "help",
        nav: "Help",
        words: "keys shortcuts keyboard about",
        key: "h",
        needs: "read",
        load: () => import("./help"),
    },
];

/** Whether this token may see a page, and the server has what the page shows. */
export function isOffered(page: Page): boolean {
    return may(page.needs) && (!page.command || knows(page.command));
}

/** The page of a path, and the values in it. */
export function find(path: string): { page: Page; values: Values } | null {
    const given = path === "" ? [] : path.split("/");
    for (const page of pages) {
        const own = page.path === "" ? [] : page.path.split("/");
        if (own.length !== given.length) continue;
        const values: Values = {};
        const fits = own.every((segment, at) => {
            if (!segment.startsWith(":")) return segment === given[at];
            try {
                values[segment.slice(1)] = decodeURIComponent(given[at]!);
                return true;
            } catch {
                return false;
            }
        });
        if (fits) return { page, values };
    }
    return null;
}

/** Whether there is a page at a path as the table has it: links are shown only to pages that exist. */
export function exists(path: string): boolean {
    return pages.some((page) => page.path === path);
}
