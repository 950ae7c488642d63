// The keys, and where to read more.

import { config } from "../lib/config";
import { may } from "../lib/rights";
import { Card } from "../parts/basics";
import { KEYS } from "../shell/keys";
import { pages } from ".";

export default function Help() {
    return (
        <>
            <h1>Shortcuts and help</h1>
            <div class="columns">
                <Card title="Keys">
                    <dl class="keys">
                        {KEYS.map(([key, what]) => (
                            <div key={key}>
                                <dt>
                                    <kbd>{key}</kbd>
                                </dt>
                                <dd>{what}</dd>
                            </div>
                        ))}
                        {pages
                            .filter((page) => page.key && may(page.needs))
                            .map((page) => (
                                <div key={page.path}>
                                    <dt>
                                        <kbd>g {page.key}</kbd>
                                    </dt>
                                    <dd>to {page.nav}</dd>
                                </div>
                            ))}
                    </dl>
                </Card>
                <Card title="Good to know">
                    <ul class="prose">
                        <li>Every view has an address with all of its filters: copy it to show another person what you see.</li>
                        <li>While this page is not seen it asks the server for nothing.</li>
                        <li>Numbers and texts of payloads are shown as they came, with all their digits.</li>
                        {config.redact.length > 0 && (
                            <li>
                                Values at these paths of payloads are redacted: <code>{config.redact.join(", ")}</code>
                            </li>
                        )}
                        <li>
                            Whatever this page does, <code>corq</code> does on the command line: <code>corq help</code> lists it.
                        </li>
                        <li>This server is corq {config.version}.</li>
                    </ul>
                </Card>
            </div>
        </>
    );
}
