// A field for the name of a queue, which offers those that begin as what is typed.

import { useState } from "preact/hooks";
import { useQuery } from "../lib/hooks";

const OFFERED = 20;

export function QueueField(props: { value: string; onChange: (queue: string) => void; label?: string; placeholder?: string }) {
    const [typed, setTyped] = useState<string | null>(null);
    const prefix = typed ?? props.value;
    const fields = { limit: OFFERED, fields: ["waiting"], ...(prefix ? { prefix } : {}) };
    const found = useQuery<{ queues: { name: string }[] }>("ListQueues", typed === null ? null : fields);
    const names = (found.data?.queues ?? []).map((row) => row.name).filter((name) => name.startsWith(prefix));
    const label = props.label ?? "Queue";
    const id = `queues-${label.replaceAll(" ", "-")}`;
    const take = (value: string) => {
        setTyped(null);
        if (value.trim() !== props.value) props.onChange(value.trim());
    };
    return (
        <>
            <input
                class="field"
                type="search"
                aria-label={label}
                placeholder={props.placeholder ?? label}
                list={id}
                value={prefix}
                autocomplete="off"
                spellcheck={false}
                onFocus={() => setTyped(props.value)}
                onInput={(event) => setTyped(event.currentTarget.value)}
                onChange={(event) => take(event.currentTarget.value)}
                onBlur={(event) => take(event.currentTarget.value)}
                onKeyDown={(event) => event.key === "Enter" && take(event.currentTarget.value)}
            />
            <datalist id={id}>
                {names.slice(0, OFFERED).map((name) => (
                    <option key={name} value={name} />
                ))}
            </datalist>
        </>
    );
}
