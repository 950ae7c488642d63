// The dashboard begins here.

import { render } from "preact";
import { connect } from "./lib/server";
import { App } from "./shell/app";

void connect();
// In a task of its own: to run the modules takes as long as to draw what is around every page.
setTimeout(() => render(<App />, document.getElementById("app")!));
