// Keys: one opens the palette, some change how things are shown, and `g` with another goes to a page.

import { timeForm, zone } from "../lib/clock";
import { navigate } from "../lib/router";
import { isOffered, pages } from "../pages";
import { openPalette, paletteOpen } from "./palette";
import { choice, theme } from "./theme";

/** What the keys do, for the help. */
export const KEYS: readonly (readonly [string, string])[] = [
    ["Ctrl K or ⌘ K", "go to a queue, a job, a page, or do something"],
    ["/", "to the filter of the page"],
    ["?", "this help"],
    ["g, then a letter", "to a page"],
    ["j, k or the arrows", "in a table: to the next or the previous row"],
    ["t", "times as dates, or how long ago they were"],
    ["z", "times in UTC, or in the zone of this browser"],
    ["d", "dark or light colours"],
    ["Escape", "closes what has opened"],
];

let going = 0;

document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        openPalette();
        return;
    }
    const target = event.target as HTMLElement;
    const types = ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
    if (types || event.ctrlKey || event.metaKey || event.altKey || paletteOpen.value || document.querySelector("dialog[open]")) {
        return;
    }
    if (going > 0 && performance.now() - going < 1500) {
        going = 0;
        const page = pages.find((one) => one.key === event.key && isOffered(one));
        if (page) {
            event.preventDefault();
            navigate(page.path || ".");
        }
        return;
    }
    switch (event.key) {
        case "g":
            going = performance.now();
            break;
        case "/": {
            const field = document.querySelector<HTMLElement>("main input[type=search]");
            if (!field) return;
            event.preventDefault();
            field.focus();
            break;
        }
        case "?":
            navigate("help");
            break;
        case "t":
            timeForm.value = timeForm.value === "relative" ? "absolute" : "relative";
            break;
        case "z":
            zone.value = zone.value === "utc" ? "local" : "utc";
            break;
        case "d":
            choice.value = theme.value === "dark" ? "light" : "dark";
            break;
    }
});
