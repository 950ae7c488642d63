// The page that asks for a token. The token goes to the server once and is kept nowhere; the browser keeps a cookie.

import { useEffect, useRef, useState } from "preact/hooks";
import { config } from "../lib/config";
import { login } from "../lib/server";
import { Button } from "../parts/basics";

export function Login() {
    const [token, setToken] = useState("");
    const [error, setError] = useState("");
    const [busy, setBusy] = useState(false);
    const field = useRef<HTMLInputElement>(null);
    useEffect(() => {
        document.title = "Log in · corq";
        field.current?.focus();
    }, []);
    const submit = async (event: Event) => {
        event.preventDefault();
        setBusy(true);
        setError("");
        try {
            await login(token);
        } catch (failure) {
            setError((failure as Error).message);
            setBusy(false);
            field.current?.select();
        }
    };
    return (
        <main class="alone" id="main">
            <form class="card alone-card" onSubmit={(event) => void submit(event)}>
                <div class="alone-brand">
                    <svg width="40" height="40" viewBox="0 0 32 32" aria-hidden="true">
                        <rect width="32" height="32" rx="9" class="brand-back" />
                        <path d="M8 11h16M8 16h11M8 21h6" class="brand-line" />
                    </svg>
                    {config.label && (
                        <span class="label" style={config.color ? { borderColor: config.color } : undefined}>
                            {config.label}
                        </span>
                    )}
                </div>
                <h1>Log in to corq</h1>
                <label class="row-field">
                    <span>Token</span>
                    <input
                        ref={field}
                        class="field"
                        type="password"
                        name="token"
                        autocomplete="current-password"
                        value={token}
                        aria-invalid={error !== ""}
                        aria-describedby="login-note"
                        onInput={(event) => setToken(event.currentTarget.value)}
                    />
                </label>
                <p class={error ? "problem" : "note"} id="login-note" role={error ? "alert" : undefined}>
                    {error || "One of the tokens in AUTH_TOKENS of the server. Its role decides what this page may do."}
                </p>
                <Button type="submit" kind="primary" disabled={busy || token === ""}>
                    Log in
                </Button>
            </form>
        </main>
    );
}
