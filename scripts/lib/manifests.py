#!/usr/bin/env python3
"""Holds rendered manifests against the schemas of Kubernetes, and against what corq needs of them; and the values of the
chart against their schema.

    manifests.py CHART OTHER-VALUES PLAIN DEFAULT OTHER
"""

import copy
import json
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

# The schemas of a new and of an old cluster. Kinds of other programs are not among them.
VERSIONS = ("1.37", "1.29")
FOREIGN = {"ServiceMonitor"}


# Values that must be refused, by the place that they are put at.
WRONG = [
    (("settings", "HOST"), "127.0.0.1"),
    (("settings", "lower_case"), "1"),
    (("persistence", "size"), "lots"),
    (("seccomp", "type"), "None"),
    (("replicas",), 2),
    (("serviceMonitor", "queues"), "some"),
    (("networkPolicy", "form"), []),
]


def documents_of(place: str) -> list[dict]:
    return [document for document in yaml.safe_load_all(Path(place).read_text()) if document]


def check_values(chart: str, other: str) -> None:
    validator = jsonschema.Draft7Validator(json.loads(Path(chart, "values.schema.json").read_text()))
    values = yaml.safe_load(Path(chart, "values.yaml").read_text())
    validator.validate(values)
    validator.validate(yaml.safe_load(Path(other).read_text()))
    for place, value in WRONG:
        wrong = copy.deepcopy(values)
        inner = wrong
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        assert not validator.is_valid(wrong), f"{'.'.join(place)} = {value} is accepted"


def check(place: str) -> int:
    documents = documents_of(place)
    kinds = {}
    for document in documents:
        kinds.setdefault(document["kind"], []).append(document)
        if document["kind"] not in FOREIGN:
            for version in VERSIONS:
                kubernetes_validate.validate(document, version, strict=True)
    (workload,) = kinds["StatefulSet"]
    spec = workload["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    labels = workload["spec"]["template"]["metadata"]["labels"].items()
    assert workload["spec"]["selector"]["matchLabels"].items() <= labels
    assert workload["spec"]["replicas"] == 1, "a second server would have a log of its own"
    services = {service["metadata"]["name"]: service for service in kinds["Service"]}
    assert workload["spec"]["serviceName"] in services
    assert all(service["spec"]["selector"].items() <= labels for service in services.values())
    (policy,) = kinds["NetworkPolicy"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels
    ports = {port["name"] for port in container["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports, probe
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz", "a server that is not ready must not be killed"
    names = {claim["metadata"]["name"] for claim in workload["spec"]["volumeClaimTemplates"]}
    names |= {volume["name"] for volume in spec.get("volumes", [])}
    assert {mount["name"] for mount in container["volumeMounts"]} == names
    rights = container["securityContext"]
    assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
    assert rights["capabilities"] == {"drop": ["ALL"]} and spec["securityContext"]["runAsNonRoot"]
    assert spec["enableServiceLinks"] is False, "CORQ_PORT would be the address of the service"
    for monitor in kinds.get("ServiceMonitor", []):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        assert len([it for it in services.values() if wanted <= it["metadata"]["labels"].items()]) == 1
        for endpoint in monitor["spec"]["endpoints"]:
            assert endpoint["port"] in ports
    return len(documents)


chart, other_values, plain, default, other = sys.argv[1:]
check_values(chart, other_values)
by_name = lambda documents: sorted(documents, key=lambda it: (it["kind"], it["metadata"]["name"]))
assert by_name(documents_of(plain)) == by_name(documents_of(default)), f"{plain} is not the chart: UPDATE=1 scripts/manifests.sh"
for place in (default, other):
    print(f"{place}: {check(place)} documents are sound")
