#!/usr/bin/env bash
# Checks the Kubernetes manifests without a cluster: the Helm chart is linted and rendered with its defaults and with
# everything switched on, the results are held against the schemas of Kubernetes, and packaging/kubernetes/corq.yaml
# must be the chart with its defaults (UPDATE=1 writes it). Needs helm, or Go with two packages, and Python.
#
#   scripts/manifests.sh
set -euo pipefail
cd "$(dirname "$0")/.."
place=$PWD/target/manifests
mkdir -p "$place"

if command -v helm >/dev/null; then
    render() { helm template "$@"; }
    helm lint --quiet --strict packaging/helm/corq
else
    # The same template engine and functions, from the packages of the distribution.
    echo "manifests: there is no helm: the chart is rendered by scripts/lib/chart" >&2
    sources=/usr/share/gocode
    command -v go >/dev/null && [ -d $sources/src/github.com/Masterminds/sprig ] && [ -d $sources/src/gopkg.in/yaml.v3 ] || {
        echo "manifests: helm is needed, or: apt-get install golang-go golang-github-masterminds-sprig-dev golang-gopkg-yaml.v3-dev" >&2
        exit 1
    }
    (cd scripts/lib/chart && GO111MODULE=off GOPATH=$sources go build -o "$place/chart" .)
    # Takes the words of `helm template`.
    render() { "$place/chart" "$2" "$1" "$4" ${6:+"$6"}; }
fi
if ! "$place/venv/bin/python" -c 'import kubernetes_validate' 2>/dev/null; then
    python3 -m venv "$place/venv"
    "$place/venv/bin/pip" install --quiet 'kubernetes-validate==1.37.0' 'pyyaml>=6'
fi

chart=packaging/helm/corq
render corq $chart --namespace corq >"$place/default.yaml"
render jobs $chart --namespace prod --values packaging/helm/everything.yaml >"$place/everything.yaml"
if [ -n "${UPDATE:-}" ]; then
    {
        echo "# The Helm chart with its defaults, for clusters without Helm. Written by UPDATE=1 scripts/manifests.sh."
        echo "#   kubectl create namespace corq && kubectl -n corq apply -f corq.yaml"
        cat "$place/default.yaml"
    } >packaging/kubernetes/corq.yaml
fi
"$place/venv/bin/python" scripts/lib/manifests.py $chart packaging/helm/everything.yaml packaging/kubernetes/corq.yaml \
    "$place/default.yaml" "$place/everything.yaml"
