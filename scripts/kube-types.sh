#!/bin/sh
# Writes the methods of internal/kube/objects and the CRDs of packaging/kubernetes/crds with controller-gen. With the
# argument check it writes nothing, and fails if they are not up to date.
set -eu
cd "$(dirname "$0")/.."
gen=sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0
run() { GOFLAGS=-mod=mod "${GO:-go}" run "$gen" "$@"; }
crds=packaging/kubernetes/crds
out=$crds
if [ "${1-}" = check ]; then
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
fi
mkdir -p "$out"
run crd:allowDangerousTypes=false paths=./internal/kube/objects/... output:crd:dir="$out"
if [ "${1-}" = check ]; then
	diff -r --exclude=kustomization.yaml "$out" "$crds"
	for dir in internal/kube/objects/*/; do
		(cd "$dir" && run object paths=. output:stdout | diff - zz_generated.deepcopy.go)
	done
	exit 0
fi
run object paths=./internal/kube/objects/...
