// A button with a list of actions.

import { useEffect, useRef, useState } from "preact/hooks";
import { Icon } from "./icons";

export interface Item {
    name: string;
    danger?: boolean;
    run: () => void;
}

/** Opens as a popover of the browser, above whatever is around it. */
export function Menu({ label, text, items }: { label: string; text?: string; items: readonly Item[] }) {
    const [open, setOpen] = useState(false);
    const button = useRef<HTMLButtonElement>(null);
    const list = useRef<HTMLDivElement>(null);
    useEffect(() => {
        if (!open) return;
        const box = button.current!.getBoundingClientRect();
        const own = list.current!;
        own.style.top = `${Math.min(box.bottom + 4, window.innerHeight - own.offsetHeight - 8)}px`;
        own.style.left = `${Math.max(8, box.right - own.offsetWidth)}px`;
        own.querySelector("button")?.focus();
        const outside = (event: Event) => {
            if (!own.contains(event.target as Node) && !button.current?.contains(event.target as Node)) setOpen(false);
        };
        const moved = (event: Event) => event.target !== own && setOpen(false);
        document.addEventListener("pointerdown", outside);
        window.addEventListener("scroll", moved, true);
        return () => {
            document.removeEventListener("pointerdown", outside);
            window.removeEventListener("scroll", moved, true);
        };
    }, [open]);
    const close = () => {
        setOpen(false);
        button.current?.focus();
    };
    const keys = (event: KeyboardEvent) => {
        if (event.key === "Escape") {
            event.stopPropagation();
            close();
        }
        const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
        if (step === 0) return;
        event.preventDefault();
        const all = [...list.current!.querySelectorAll("button")];
        const at = all.indexOf(document.activeElement as HTMLButtonElement);
        all[(at + step + all.length) % all.length]?.focus();
    };
    return (
        <span class="menu">
            <button
                type="button"
                ref={button}
                class={`button ${text ? "" : "quiet is-icon"}`}
                aria-label={text ? undefined : label}
                title={label}
                aria-haspopup="menu"
                aria-expanded={open}
                onClick={() => setOpen(!open)}
            >
                {text}
                <Icon name={text ? "down" : "more"} size={16} />
            </button>
            {open && (
                <div class="menu-list" role="menu" aria-label={label} ref={list} onKeyDown={keys}>
                    {items.map((item) => (
                        <button
                            type="button"
                            role="menuitem"
                            key={item.name}
                            class={item.danger ? "danger" : ""}
                            onClick={() => {
                                close();
                                item.run();
                            }}
                        >
                            {item.name}
                        </button>
                    ))}
                </div>
            )}
        </span>
    );
}
