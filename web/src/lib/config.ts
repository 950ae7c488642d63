// What the server has told the page: its place and the settings of the dashboard.

interface Told {
    version: string;
    path: string;
    label?: string;
    color?: string;
    redact: string[];
    tcpPort: number;
    tls: boolean;
}

const told = JSON.parse(document.querySelector<HTMLMetaElement>('meta[name="corq"]')?.content ?? "{}") as Partial<Told>;

/** Where the page lies, with a slash at the end; behind a proxy with the path of the proxy. */
export const base = new URL(document.baseURI);

/** Where the server's own routes begin, with a slash at the end. */
export const root = new URL(base);
root.pathname = base.pathname.slice(0, base.pathname.length - (told.path ?? "/ui").length);
if (!root.pathname.endsWith("/")) root.pathname += "/";

export const config = {
    version: told.version ?? "",
    label: told.label ?? "",
    color: told.color ?? "",
    redact: told.redact ?? [],
    tcpPort: told.tcpPort ?? 6789,
    tls: told.tls ?? false,
};
