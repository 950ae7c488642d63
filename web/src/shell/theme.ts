// Light or dark, as the system says or as the reader has chosen.

import { computed, effect, signal } from "@preact/signals";
import { kept } from "../lib/store";

export const choice = kept("theme", "system", ["system", "light", "dark"] as const);

const query = window.matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(query.matches);
query.addEventListener("change", () => (systemDark.value = query.matches));

export const theme = computed(() =>
    choice.value === "system" ? (systemDark.value ? "dark" : "light") : choice.value,
);

effect(() => {
    document.documentElement.dataset["theme"] = theme.value;
});
