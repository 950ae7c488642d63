#!/usr/bin/env bash
# Prints the path of a Python that has the Python client and the packages of OpenTelemetry that the tests use.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib/python.sh

python_of python-client "bunqueue-client==0.1.5 opentelemetry-sdk==1.45.2 opentelemetry-proto==1.45.2"
