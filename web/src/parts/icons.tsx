// Icons: strokes of one weight on a square of 20.

const PATHS = {
    overview: "M3 11.5h3l2.5-7 3 12 2.5-8 1 3h2",
    queues: "M3.5 5.5h13M3.5 10h9M3.5 14.5h5.5",
    job: "M5.5 3.5h6l3.5 3.5v9.5h-9.5zM11 3.5v4h4",
    search: "M9 3.8a5.2 5.2 0 1 1 0 10.4A5.2 5.2 0 0 1 9 3.8M12.8 12.8l3.7 3.7",
    help: "M7.6 7.6a2.5 2.5 0 1 1 3.4 2.4c-.7.3-1 .8-1 1.7M10 14.4v.1M10 2.8a7.2 7.2 0 1 1 0 14.4 7.2 7.2 0 0 1 0-14.4",
    pause: "M7 4.5v11M13 4.5v11",
    play: "M6.5 4.3v11.4l9-5.7z",
    close: "M5 5l10 10M15 5L5 15",
    check: "M4 10.5l4 4 8-9",
    copy: "M7 7h9v9H7zM13 7V4H4v9h3",
    down: "M5 7.5l5 5 5-5",
    up: "M5 12.5l5-5 5 5",
    right: "M7.5 5l5 5-5 5",
    warning: "M10 3.2l7.2 13H2.8zM10 8v3.6M10 13.9v.1",
    info: "M10 2.8a7.2 7.2 0 1 1 0 14.4 7.2 7.2 0 0 1 0-14.4M10 9v4.5M10 6.4v.1",
    sun: "M10 6.5a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7M10 1.8v1.8M10 16.4v1.8M1.8 10h1.8M16.4 10h1.8M4.2 4.2l1.3 1.3M14.5 14.5l1.3 1.3M4.2 15.8l1.3-1.3M14.5 5.5l1.3-1.3",
    moon: "M16.5 11.6A6.9 6.9 0 0 1 8.4 3.5a6.9 6.9 0 1 0 8.1 8.1z",
    clock: "M10 2.8a7.2 7.2 0 1 1 0 14.4 7.2 7.2 0 0 1 0-14.4M10 6v4.2l2.8 1.8",
    menu: "M3.5 5.5h13M3.5 10h13M3.5 14.5h13",
    more: "M5 10v.1M10 10v.1M15 10v.1",
    logout: "M8.5 3.5h-5v13h5M8 10h9M13.5 6.5L17 10l-3.5 3.5",
    retry: "M16 10a6 6 0 1 1-1.8-4.3M16 3v3.4h-3.4",
    trash: "M4 5.5h12M8 5.5V3.5h4v2M5.5 5.5l.8 11h7.4l.8-11",
    dead: "M10 3a6 6 0 0 1 4 10.5v3h-8v-3A6 6 0 0 1 10 3M8 9v.1M12 9v.1",
    flow: "M3 10h4M7 10c3 0 2-5 6-5h4M7 10c3 0 2 5 6 5h4",
    cron: "M10 2.8a7.2 7.2 0 1 1 0 14.4 7.2 7.2 0 0 1 0-14.4M10 6v4.2h3.5",
    worker: "M4 4.5h12v8H4zM8 16h4M10 12.5V16",
    group: "M4 4h5v5H4zM11 4h5v5h-5zM4 11h5v5H4zM11 11h5v5h-5z",
    webhook: "M7 7a3 3 0 1 1 4.5 2.6l2.2 3.9M10 7l-3 6M13 14a3 3 0 1 0 0-1.5M7 13.5h6",
    events: "M10 10v.1M6.5 13.5a5 5 0 0 1 0-7M13.5 6.5a5 5 0 0 1 0 7M4 16a8.5 8.5 0 0 1 0-12M16 4a8.5 8.5 0 0 1 0 12",
    server: "M3.5 4h13v5h-13zM3.5 11h13v5h-13zM6.5 6.5v.1M6.5 13.5v.1",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
    return (
        <svg class="icon" width={size} height={size} viewBox="0 0 20 20" aria-hidden="true" focusable="false">
            <path d={PATHS[name]} />
        </svg>
    );
}
