// Questions before something is done, and short words about what was done.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "../lib/server";
import { Button } from "./basics";

export interface Field {
    name: string;
    label: string;
    value?: string;
    hint?: string;
    type?: "number" | "text";
    min?: number;
    max?: number;
    required?: boolean;
}

export interface Question {
    title: string;
    /** What will be done, to what, and to how many. */
    text?: string;
    action: string;
    danger?: boolean;
    fields?: Field[];
    /** What has to be typed before it is done. */
    word?: string;
}

type Answers = Record<string, string>;

const asked = signal<(Question & { done: (answers: Answers | null) => void }) | null>(null);

/** Asks; null if it is not to be done. */
export function question(own: Question): Promise<Answers | null> {
    asked.value?.done(null);
    return new Promise((resolve) => {
        asked.value = {
            ...own,
            done: (answers) => {
                asked.value = null;
                resolve(answers);
            },
        };
    });
}

interface Toast {
    id: number;
    text: string;
    bad: boolean;
}

const toasts = signal<Toast[]>([]);
let toastId = 0;

export function say(text: string, bad = false): void {
    const id = ++toastId;
    toasts.value = [...toasts.value.slice(-3), { id, text, bad }];
    setTimeout(() => (toasts.value = toasts.value.filter((toast) => toast.id !== id)), bad ? 12_000 : 5000);
}

/** Asks if there is something to be asked, sends commands, and says what came of it. */
export async function act(own: {
    question?: Question;
    /** The command with its fields; `answers` are those of the question. */
    run: (answers: Answers) => readonly [string, object] | null;
    said: (reply: Record<string, unknown>) => string;
    after?: () => void;
}): Promise<void> {
    const answers = own.question ? await question(own.question) : {};
    const command = answers && own.run(answers);
    if (!command) return;
    try {
        const { data } = await ask<Record<string, unknown>>(...command);
        say(own.said(data));
    } catch (error) {
        say((error as Error).message, true);
    }
    own.after?.();
}

export function Dialogs() {
    const own = asked.value;
    return (
        <>
            {own && <QuestionDialog key={own.title} own={own} />}
            <div class="toasts" role="status" aria-live="polite">
                {toasts.value.map((toast) => (
                    <div key={toast.id} class={`toast ${toast.bad ? "bad" : ""}`}>
                        <span>{toast.text}</span>
                        <Button
                            kind="quiet"
                            icon="close"
                            label="Dismiss"
                            onClick={() => (toasts.value = toasts.value.filter((one) => one !== toast))}
                        />
                    </div>
                ))}
            </div>
        </>
    );
}

function QuestionDialog({ own }: { own: NonNullable<typeof asked.value> }) {
    const ref = useRef<HTMLDialogElement>(null);
    const [values, setValues] = useState<Answers>(() =>
        Object.fromEntries((own.fields ?? []).map((field) => [field.name, field.value ?? ""])),
    );
    const [word, setWord] = useState("");
    useEffect(() => {
        const before = document.activeElement as HTMLElement | null;
        ref.current?.showModal();
        return () => before?.focus?.();
    }, []);
    const ready =
        (!own.word || word === own.word) && (own.fields ?? []).every((field) => !field.required || values[field.name]);
    const submit = (event: Event) => {
        event.preventDefault();
        if (ready) own.done(values);
    };
    return (
        <dialog ref={ref} class="dialog" aria-labelledby="dialog-title" onClose={() => own.done(null)}>
            <form onSubmit={submit}>
                <h2 id="dialog-title">{own.title}</h2>
                {own.text && <p>{own.text}</p>}
                {own.fields?.map((field) => (
                    <label class="row-field" key={field.name}>
                        <span>{field.label}</span>
                        <input
                            class="field"
                            name={field.name}
                            {...({ type: field.type ?? "text" } as { type: "text" })}
                            min={field.min}
                            max={field.max}
                            required={field.required}
                            value={values[field.name]}
                            autocomplete="off"
                            onInput={(event) => setValues({ ...values, [field.name]: event.currentTarget.value })}
                        />
                        {field.hint && <small>{field.hint}</small>}
                    </label>
                ))}
                {own.word && (
                    <label class="row-field">
                        <span>
                            Type <b>{own.word}</b> to go on
                        </span>
                        <input class="field" value={word} autocomplete="off" onInput={(event) => setWord(event.currentTarget.value)} />
                    </label>
                )}
                <div class="buttons">
                    <Button onClick={() => own.done(null)}>Cancel</Button>
                    <Button type="submit" kind={own.danger ? "danger" : "primary"} disabled={!ready}>
                        {own.action}
                    </Button>
                </div>
            </form>
        </dialog>
    );
}
