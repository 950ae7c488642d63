#!/usr/bin/env python3
"""What of others is in the program: their licences, and a bill of materials.

    third_party.py licences ARCH              # the notices, as text
    third_party.py sbom ARCH PROGRAM          # CycloneDX 1.5, as JSON

Counts what is linked into the program: crates (not build scripts, macros and tests), the libraries of the dashboard that it
serves, and what the compilers add: the standard library of Rust, glibc and libgcc. SOURCE_DATE_EPOCH is the time of both.
"""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LICENCE_FILES = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicen[cs]e)", re.IGNORECASE)
WORKSPACE = "the workspace"


def run(*words: str) -> str:
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def linked_crates(target: str) -> set[tuple[str, str]]:
    """Names and versions of the crates that the program is linked from, macros and what they need left out."""
    tree = run(
        "cargo", "tree", "--locked", "-p", "corq", "--edges", "normal", "--target", target,
        "--no-dedupe", "--prefix", "depth", "--format", " {p}",
    )  # fmt: skip
    crates, skipped_below = set(), None
    for line in tree.splitlines():
        found = re.match(r"(\d+) (\S+) v(\S+)(.*)", line)
        if found is None:
            continue
        depth = int(found[1])
        if skipped_below is not None and depth > skipped_below:
            continue
        skipped_below = depth if "(proc-macro)" in found[4] else None
        if skipped_below is None:
            crates.add((found[2], found[3]))
    return crates


def spdx(licence: str | None) -> str:
    # Cargo once took a slash for "or".
    return re.sub(r"\s*/\s*", " OR ", licence or "")


def crates(target: str) -> list[dict]:
    metadata = json.loads(run("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", f"{target}"))
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    sums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock}
    linked = linked_crates(target)
    # Kinds are none for what is linked, "dev" and "build" for the rest.
    edges = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    chosen = {
        package["id"]: package for package in metadata["packages"] if (package["name"], package["version"]) in linked
    }
    found = []
    for identity, package in chosen.items():
        name, version = package["name"], package["version"]
        ours = package["source"] is None
        found.append(
            {
                "name": name,
                "version": version,
                "kind": WORKSPACE if ours else "crate",
                "licence": spdx(package["license"]),
                "url": package["repository"] or package["homepage"],
                "authors": package["authors"],
                "place": Path(package["manifest_path"]).parent,
                "purl": None if ours else f"pkg:cargo/{name}@{version}",
                "sum": ("SHA-256", sums.get((name, version))) if sums.get((name, version)) else None,
                "needs": sorted(reference(chosen[other]) for other in set(edges[identity]) & chosen.keys()),
            }
        )
    missing = linked - {(crate["name"], crate["version"]) for crate in found}
    if missing:
        raise SystemExit(f"third_party: cargo metadata does not know {sorted(missing)}")
    return sorted(found, key=lambda crate: (crate["name"], crate["version"]))


def reference(package: dict) -> str:
    return f"{package['name']}@{package['version']}"


def page_libraries() -> list[dict]:
    """The libraries that the built dashboard contains: what package.json depends on, and what that does."""
    lock = json.loads((ROOT / "web/package-lock.json").read_text())["packages"]
    found = []
    for place, package in lock.items():
        if not place or package.get("dev") or package.get("optional"):
            continue
        name = place.removeprefix("node_modules/")
        algorithm, digest = package["integrity"].split("-", 1)
        quoted = name.replace("@", "%40")
        found.append(
            {
                "name": name,
                "version": package["version"],
                "kind": "library of the dashboard",
                "licence": package["license"],
                "url": f"https://www.npmjs.com/package/{name}",
                "place": ROOT / "packaging/licences" / name.replace("/", "+"),
                "purl": f"pkg:npm/{quoted}@{package['version']}",
                "sum": (algorithm.upper().replace("SHA", "SHA-"), base64.b64decode(digest).hex()),
                "needs": sorted(f"{other}@{lock['node_modules/' + other]['version']}" for other in package.get("dependencies", {})),
            }
        )
    return sorted(found, key=lambda library: library["name"])


def runtime(arch: str) -> list[dict]:
    """What the compilers link into every program."""
    native = arch == os.uname().machine
    compiler = "gcc" if native else f"{arch}-linux-gnu-gcc"
    rust = run("rustc", "--version").split()[1]
    gcc = run(compiler, "-dumpfullversion").strip()
    headers = run(compiler, "-E", "-dM", "-include", "features.h", "-x", "c", "/dev/null")
    libc = ".".join(re.search(rf"#define __GLIBC{part} (\d+)", headers)[1] for part in ("__", "_MINOR__"))
    sysroot = Path(run("rustc", "--print", "sysroot").strip())
    entries = [
        ("rust-std", rust, "MIT OR Apache-2.0", "https://github.com/rust-lang/rust", [sysroot / "share/doc/rust/licenses"]),
        ("glibc", libc, "LGPL-2.1-or-later", "https://sourceware.org/glibc/", [Path("/usr/share/common-licenses/LGPL-2.1")]),
        ("libgcc", gcc, "GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org/", []),
    ]
    return [
        {
            "name": name, "version": version, "kind": "part of the compilers", "licence": licence, "url": url,
            "place": places[0] if places else None, "purl": f"pkg:generic/{name}@{version}", "sum": None, "needs": [],
        }
        for name, version, licence, url, places in entries
    ]  # fmt: skip


def everything(arch: str) -> list[dict]:
    return crates(f"{arch}-unknown-linux-gnu") + page_libraries() + runtime(arch)


RELINKING = """corq is linked statically with glibc, whose licence (LGPL-2.1, below) gives you the right to replace it. The sources of corq,
under Apache-2.0, and scripts/dist.sh build it again with a glibc of your own. libgcc comes under the GPL with the GCC
runtime library exception, which lets programs that it is part of have any licence."""


def texts(component: dict) -> list[str]:
    place = component["place"]
    if place is None or not place.exists():
        files = []
    elif place.is_file():
        files = [place]
    elif component["name"] == "rust-std":
        files = [place / name for name in ("MIT.txt", "Apache-2.0.txt") if (place / name).exists()]
    else:
        files = [path for path in sorted(place.iterdir()) if path.is_file() and LICENCE_FILES.match(path.name)]
    if not files and component["kind"] == "crate":
        # Its package has none: the common text stands in, beside the authors that the package names.
        sysroot = Path(run("rustc", "--print", "sysroot").strip())
        names = re.split(r" OR | AND |[()]", component["licence"])
        files = [path for name in names if (path := sysroot / f"share/doc/rust/licenses/{name}.txt").exists()]
    return [path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip() for path in files]


def licences(arch: str) -> str:
    components = [component for component in everything(arch) if component["kind"] != WORKSPACE]
    unknown = [component["name"] for component in components if not component["licence"]]
    if unknown:
        raise SystemExit(f"third_party: without a licence: {', '.join(unknown)}")
    lines = ["Software of others in corq", "", RELINKING, ""]
    holders: dict[str, list[str]] = {}
    originals: dict[str, str] = {}
    for component in components:
        mine = texts(component)
        label = f"{component['name']} {component['version']}"
        if not mine and component["name"] != "libgcc":
            raise SystemExit(f"third_party: there is no text of {component['licence']} for {label}")
        authors = f", by {', '.join(component['authors'])}" if component.get("authors") else ""
        lines.append(f"- {label}: {component['licence']}{authors}, {component['url']}")
        for text in mine:
            # Texts that differ in their line breaks alone are one.
            key = " ".join(text.split())
            originals.setdefault(key, text)
            holders.setdefault(key, []).append(label)
    for key, names in sorted(holders.items(), key=lambda entry: entry[1]):
        lines += ["", "=" * 100, ", ".join(sorted(set(names))), "=" * 100, "", originals[key]]
    return "\n".join(lines) + "\n"


def as_component(component: dict) -> dict:
    entry = {"type": "library", "bom-ref": reference(component), "name": component["name"], "version": component["version"]}
    if component["licence"]:
        entry["licenses"] = [{"expression": component["licence"]}]
    if component["sum"]:
        entry["hashes"] = [{"alg": component["sum"][0], "content": component["sum"][1]}]
    if component["purl"]:
        entry["purl"] = component["purl"]
    if component["url"]:
        entry["externalReferences"] = [{"type": "website", "url": component["url"]}]
    return entry


def sbom(arch: str, program: Path) -> str:
    components = everything(arch)
    itself = next(component for component in components if component["name"] == "corq")
    others = [component for component in components if component is not itself]
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    time = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    top = as_component(itself) | {"type": "application", "hashes": [{"alg": "SHA-256", "content": digest}]}
    beside = sorted(reference(component) for component in others if component["kind"] not in ("crate", WORKSPACE))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'corq:{arch}:{digest}')}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": top,
            "properties": [{"name": "corq:target", "value": f"{arch}-unknown-linux-gnu"}],
        },
        "components": [as_component(component) for component in others],
        "dependencies": [
            {"ref": reference(component), "dependsOn": component["needs"] + (beside if component is itself else [])}
            for component in components
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def main(words: list[str]) -> None:
    match words:
        case ["licences", arch]:
            sys.stdout.write(licences(arch))
        case ["sbom", arch, program]:
            sys.stdout.write(sbom(arch, Path(program)))
        case _:
            raise SystemExit(__doc__)


main(sys.argv[1:])
