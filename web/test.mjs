// Tests of what the dashboard does with texts of payloads, which come from strangers: run by scripts/web.sh before a build.
import { build } from "esbuild";
import { deepStrictEqual as equal, ok } from "node:assert";
import { fileURLToPath } from "node:url";

globalThis.document = { querySelector: () => null, baseURI: "http://localhost:6790/ui/" };
const { outputFiles } = await build({
    absWorkingDir: fileURLToPath(new URL(".", import.meta.url)),
    stdin: { contents: 'export * from "./src/lib/json"; export * from "./src/lib/redact";', resolveDir: fileURLToPath(new URL(".", import.meta.url)) },
    bundle: true,
    format: "esm",
    write: false,
});
const { rawAt, entries, indented, kindOf, pastValue, covered, isCovered } = await import(
    `data:text/javascript;base64,${Buffer.from(outputFiles[0].text).toString("base64")}`
);

// Digits, escapes and repeated keys stay as they came.
const text = ' {"a" : 18446744073709551615, "b":[1.0, -0.0 ,1e400], "c\\"d": "\\u00e9\\\\", "a":2, "e":{ } , "f":[ ],"g":null}';
equal(rawAt(text, ["a"]), "18446744073709551615");
equal(rawAt(text, ["b"]), "[1.0, -0.0 ,1e400]");
equal(rawAt(text, ["b", "2"]), "1e400");
equal(rawAt(text, ['c"d']), '"\\u00e9\\\\"');
equal([rawAt(text, ["e"]), rawAt(text, ["f"]), rawAt(text, ["g"])], ["{ }", "[ ]", "null"]);
equal([rawAt(text, ["none"]), rawAt(text, ["a", "b"])], [undefined, undefined]);
equal(entries(text, 0).map(({ key }) => key), ["a", "b", 'c"d', "a", "e", "f", "g"]);
equal(entries(text, 0, 2).length, 2);
equal(["{}", "[]", '""', "1", "true", "null"].map((one) => kindOf(one)), ["object", "list", "string", "number", "boolean", "null"]);
equal(indented('{"a":[1,{"b":"x, {y}"}],"c":{}}'), '{\n  "a": [\n    1,\n    {\n      "b": "x, {y}"\n    }\n  ],\n  "c": {}\n}');

// Brackets and quotes within strings are no brackets and quotes; what ends too early ends there.
equal(rawAt('{"a":"}{][\\"","b":1}', ["b"]), "1");
for (const cut of ['{"a":"b', '{"a', "[1,[2", '{"a":{"b":', "", "tru"]) {
    ok(pastValue(cut, 0) <= cut.length + 1, cut);
    entries(cut, 0);
    covered(cut, [["a"]]);
    indented(cut);
}

// A payload nests as deep as it likes.
const deep = "[".repeat(200_000) + "]".repeat(200_000);
equal(pastValue(deep, 0), deep.length);

// A path covers what ends with it.
const pattern = (path) => path.split(".").reverse();
const own = ["password", "*.token", "cards.*.number"].map(pattern);
equal(isCovered(["user", "password"], own), true);
equal(isCovered(["token"], own), false);
equal(isCovered(["a", "token"], own), true);
equal(isCovered(["cards", "0", "number"], own), true);
equal(isCovered(["number"], own), false);
const payload = '{"password":{"deep":["x"]},"user":{"token":"secret","n":1},"cards":[{"number":4111,"name":"A"}],"token":"kept"}';
equal(
    covered(payload, own),
    '{"password":"[redacted]","user":{"token":"[redacted]","n":1},"cards":[{"number":"[redacted]","name":"A"}],"token":"kept"}',
);
equal(covered('"password"', own), '"password"');
equal(covered(payload, []), payload);
console.log("payloads: ok");
