// What an empty server shows: how to push a first job, with its own address.

import { signal } from "@preact/signals";
import { config, root } from "../lib/config";
import { who } from "../lib/server";
import { Card, Choice, Copy } from "./basics";

const KINDS = [
    ["curl", "curl"],
    ["python", "Python"],
    ["node", "Node.js"],
    ["rust", "Rust"],
    ["cli", "corq"],
] as const;

type Kind = (typeof KINDS)[number][0];

const kind = signal<Kind>("curl");

function snippets(): Record<Kind, string> {
    const host = root.hostname;
    const jobs = new URL("queues/emails/jobs", root).href;
    const hasToken = who.value?.by !== "nothing";
    const port = config.tcpPort;
    const bearer = hasToken ? ` \\\n  -H "Authorization: Bearer $CORQ_TOKEN"` : "";
    const pythonToken = hasToken ? `, token=os.environ["CORQ_TOKEN"]` : "";
    const scheme = config.tls ? "tls" : "tcp";
    const address = `"${scheme}://${host}:${port}"`;
    const rustClient = hasToken
        ? `Client::builder(${address})\n        .token(std::env::var("CORQ_TOKEN").expect("CORQ_TOKEN is set"))\n        .connect()\n        `
        : `Client::connect(${address})`;
    return {
        curl: `curl -X POST ${jobs}${bearer} \\\n  -d '{"data": {"to": "ada@example.org"}}'`,
        python: `# pip install bunqueue-client\n${hasToken ? "import os\n" : ""}from bunqueue import Queue, Worker\n\nQueue("emails", host="${host}", port=${port}${pythonToken}).add("welcome", {"to": "ada@example.org"})\nWorker("emails", lambda job: print("sending", job.data), host="${host}", port=${port}${pythonToken}).run()`,
        node: `// Node.js 18 or later\nconst answer = await fetch("${jobs}", {\n  method: "POST",${hasToken ? `\n  headers: { Authorization: \`Bearer \${process.env.CORQ_TOKEN}\` },` : ""}\n  body: JSON.stringify({ name: "welcome", data: { to: "ada@example.org" } }),\n});\nconsole.log(await answer.json());`,
        rust: `// Cargo.toml: corq-client${config.tls ? " with tls" : ""}, serde with derive, tokio with macros and rt-multi-thread\nuse corq_client::{Client, Error};\nuse serde::Serialize;\n\n#[derive(Serialize)]\nstruct Email {\n    to: String,\n}\n\n#[tokio::main]\nasync fn main() -> Result<(), Error> {\n    let client = ${rustClient}.await?;\n    let id = client.queue("emails").push(&Email { to: "ada@example.org".into() }).await?;\n    println!("pushed {id}");\n    Ok(())\n}`,
        cli: `corq push emails '{"to":"ada@example.org"}'\ncorq pull emails`,
    };
}

export function FirstJob() {
    const text = snippets()[kind.value];
    return (
        <Card title="Push a first job" class="first">
            <p>
                This server has no jobs yet. Push one to the queue <code>emails</code>: a queue exists from its first job on.
            </p>
            <Choice label="Language" value={kind.value} options={KINDS} onChange={(value) => (kind.value = value)} />
            <div class="snippet">
                <pre class="code" tabIndex={0}>
                    {text}
                </pre>
                <Copy text={text} label="Copy the example" />
            </div>
            <p class="note">
                This page shows the job as soon as it arrives. <code>corq demo</code> fills the server with a minute of sample work.
            </p>
        </Card>
    );
}
