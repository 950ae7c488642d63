// Figures and times for people.

import { zone } from "./clock";

const grouped = new Intl.NumberFormat("en-US");

/** A whole number in full. */
export function count(value: number | null | undefined): string {
    return value === null || value === undefined ? "–" : grouped.format(value);
}

/** A number in at most four characters and a unit. */
export function short(value: number | null | undefined): string {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    for (const [unit, name] of [
        [1e12, "T"],
        [1e9, "G"],
        [1e6, "M"],
        [1e4, "k"],
    ] as const) {
        const scale = name === "k" ? 1e3 : unit;
        if (size >= unit) return digits(value / scale) + name;
    }
    return size >= 100 || Number.isInteger(value) ? grouped.format(Math.round(value)) : digits(value);
}

function digits(value: number): string {
    const size = Math.abs(value);
    return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 1 : 2).replace(/\.0+$/, "");
}

export function perSecond(value: number | null | undefined): string {
    return value === null || value === undefined ? "–" : `${short(Math.round(value * 100) / 100)}/s`;
}

export function bytes(value: number | null | undefined): string {
    if (value === null || value === undefined) return "–";
    for (const [unit, name] of [
        [2 ** 40, "TB"],
        [2 ** 30, "GB"],
        [2 ** 20, "MB"],
        [2 ** 10, "KB"],
    ] as const) {
        if (value >= unit) return `${digits(value / unit)} ${name}`;
    }
    return `${value} B`;
}

/** A duration in its two largest units. */
export function duration(ms: number | null | undefined): string {
    if (ms === null || ms === undefined) return "–";
    const size = Math.abs(ms);
    if (size < 1000) return `${digits(size)} ms`;
    if (size < 60_000) return `${digits(size / 1000)} s`;
    const parts: string[] = [];
    let rest = Math.round(size / 1000);
    for (const [unit, name] of [
        [86_400, "d"],
        [3600, "h"],
        [60, "min"],
        [1, "s"],
    ] as const) {
        const whole = Math.floor(rest / unit);
        if (whole > 0 && parts.length < 2) parts.push(`${whole} ${name}`);
        else if (parts.length > 0) break;
        rest -= whole * unit;
    }
    return parts.join(" ");
}

/** A text of the server for people, whose milliseconds become durations. */
export function readable(text: string): string {
    return text.replace(/\b(\d+) ms\b/g, (_, ms: string) => duration(Number(ms)));
}

/** A duration in one unit, where there is little room. */
export function brief(ms: number | null | undefined): string {
    if (ms === null || ms === undefined) return "–";
    for (const [unit, name] of [
        [86_400_000, "d"],
        [3_600_000, "h"],
        [60_000, "min"],
    ] as const) {
        if (ms >= unit) return `${digits(ms / unit)} ${name}`;
    }
    return duration(ms);
}

/** How long ago, or until when. */
export function relative(at: number, now: number): string {
    const ago = Math.round((now - at) / 1000) * 1000;
    if (ago === 0) return "now";
    return ago > 0 ? `${duration(ago)} ago` : `in ${duration(-ago)}`;
}

function formatter(options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
    const utc = zone.value === "utc" ? { timeZone: "UTC" } : {};
    return new Intl.DateTimeFormat("en-GB", { ...options, ...utc });
}

/** A time with its zone. */
export function absolute(at: number): string {
    const date = new Date(at);
    const text = formatter({
        year: "numeric",
        month: "2-digit",
        day: "2-digit",
        hour: "2-digit",
        minute: "2-digit",
        second: "2-digit",
        hour12: false,
    })
        .formatToParts(date)
        .reduce<Record<string, string>>((all, part) => ({ ...all, [part.type]: part.value }), {});
    return `${text["year"]}-${text["month"]}-${text["day"]} ${text["hour"]}:${text["minute"]}:${text["second"]} ${zoneName(date)}`;
}

/** The time of a day. */
export function clock(at: number, seconds = false): string {
    const second = seconds ? ({ second: "2-digit" } as const) : {};
    return formatter({ hour: "2-digit", minute: "2-digit", hour12: false, ...second }).format(new Date(at));
}

function zoneName(date: Date): string {
    if (zone.value === "utc") return "UTC";
    const minutes = -date.getTimezoneOffset();
    if (minutes === 0) return "UTC";
    const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
    return `UTC${minutes < 0 ? "−" : "+"}${hours}${rest ? `:${String(rest).padStart(2, "0")}` : ""}`;
}

/** One of several, with its number. */
export function many(number: number, one: string, more = `${one}s`): string {
    return `${count(number)} ${number === 1 ? one : more}`;
}

/** A text as one word of a shell. */
export function shellWord(text: string): string {
    return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
