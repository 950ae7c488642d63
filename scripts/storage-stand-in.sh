#!/usr/bin/env bash
# Prints the path of a Python that has the stand-in for S3 that the tests use.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib/python.sh

python_of storage-stand-in "moto[s3,iam,server]==5.1.4"
