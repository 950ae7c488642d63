"""Asks a Prometheus, over its own API, how it watches the corq of a package.

  watched.py URL ALERTS BOARD up              it scrapes the server, has all rules of ALERTS and evaluates them without an
                                              error, knows every metric that they and the panels of BOARD name, and none fires
  watched.py URL ALERTS BOARD restarted       the same, and it has seen a restart
  watched.py URL ALERTS BOARD pending ALERT   the expression of ALERT is true

Waits for it for a minute, then says what is missing.
"""

import json
import re
import sys
import time
import urllib.parse
import urllib.request

WAIT_S = 60
# Only a server with TLS has these.
WITH_TLS = "corq_tls_"


class NotYet(Exception):
    """Why it is not so. It may become so."""


def ask(url, path, **parameters):
    query = "?" + urllib.parse.urlencode(parameters) if parameters else ""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}{query}", timeout=10) as reply:
            answer = json.load(reply)
    except urllib.error.HTTPError as error:
        raise NotYet(f"{path}{query}: {error.read().decode()}") from error
    except OSError as error:
        raise NotYet(f"{path}{query}: {error}") from error
    if answer["status"] != "success":
        raise NotYet(f"{path}{query}: {answer}")
    return answer["data"]


def value(url, expression):
    """The sum of what an expression gives; None if that is nothing."""
    samples = ask(url, "query", query=expression)["result"]
    return sum(float(sample["value"][1]) for sample in samples) if samples else None


def expect(holds, what):
    if not holds:
        raise NotYet(what)


def is_scraped(url):
    targets = ask(url, "targets", state="active")["activeTargets"]
    expect(len(targets) == 1, f"{len(targets)} targets")
    target = targets[0]
    expect(target["labels"]["job"] == "corq", f"the job is {target['labels']}")
    expect(target["health"] == "up" and not target["lastError"], f"{target['health']}: {target['lastError']}")


def rules(url):
    groups = ask(url, "rules", type="alert")["groups"]
    return [rule for group in groups for rule in group["rules"]]


def has_the_rules(url, alerts):
    with open(alerts, encoding="utf-8") as file:
        shipped = re.findall(r"^\s*- alert: (\w+)$", file.read(), re.MULTILINE)
    expect(len(shipped) > 20, f"{len(shipped)} alerts in {alerts}")
    loaded = rules(url)
    names = [rule["name"] for rule in loaded]
    expect(sorted(names) == sorted(shipped), f"it has the rules {names}")
    for rule in loaded:
        expect(
            rule["health"] == "ok" and not rule.get("lastError"),
            f"{rule['name']}: {rule['health']} {rule.get('lastError', '')}",
        )


def knows_what_they_name(url, board):
    with open(board, encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    drawn = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    expect(len(drawn) > 40, f"{len(drawn)} expressions in {board}")
    drawn = [
        it.replace('"$job"', '"corq"').replace('"$instance"', '".+"').replace('"$queue"', '".+"').replace("$__rate_interval", "1m")
        for it in drawn
    ]
    for expression in drawn:
        expect("$" not in expression, f"a variable is left in {expression}")
        # An error of the expression is an answer with the status 400.
        value(url, expression)
    expressions = drawn + [rule["query"] for rule in rules(url)]
    metrics = {name for it in expressions for name in re.findall(r"\bcorq_\w+", it)}
    expect(len(metrics) > 40, f"{len(metrics)} metrics")
    for metric in sorted(metrics):
        known = value(url, f"count({metric})") is not None
        expect(known or metric.startswith(WITH_TLS), f"no sample of {metric}")


def states(url):
    return {alert["labels"]["alertname"]: alert["state"] for alert in ask(url, "alerts")["alerts"]}


def none_fires(url):
    firing = [name for name, state in states(url).items() if state == "firing"]
    expect(not firing, f"{firing} fire")


def main():
    url, alerts, board, what, *rest = sys.argv[1:]

    def check():
        if what == "pending":
            expect(states(url).get(rest[0]) in ("pending", "firing"), f"{rest[0]} is not pending: {states(url)}")
            return
        is_scraped(url)
        has_the_rules(url, alerts)
        knows_what_they_name(url, board)
        none_fires(url)
        if what == "restarted":
            seen = value(url, "resets(corq_uptime_seconds[10m])")
            expect(seen is not None and seen >= 1, f"it has seen {seen} restarts")

    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return check()
        except NotYet as why:
            if time.monotonic() > deadline:
                sys.exit(f"watched: {why}")
        time.sleep(0.5)


main()
