#!/bin/sh
# Builds the control plane that test/kube runs, from Go modules: etcd, kube-apiserver, kube-controller-manager and
# kube-scheduler. Helm for the chart is beside them.
# The first build takes about ten minutes on one core; the result stays in .cache/kube.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
dir=$PWD/.cache/kube
module=test/kube/controlplane
mkdir -p "$dir"
ln -sf "$(scripts/helm.sh)" "$dir/helm"
stamp=$(cat $module/go.mod scripts/kube-bench.sh | sha256sum | cut -d ' ' -f 1)
if [ "$(cat "$dir/stamp" 2>/dev/null)" = "$stamp" ]; then
	exit 0
fi
rm -f "$dir/stamp"
version=$(sed -n 's|^.*k8s.io/kubernetes v\([0-9.]*\).*|\1|p' $module/go.mod | head -1)
minor=${version#*.}
minor=${minor%%.*}
pkg=k8s.io/component-base/version
flags="-s -w -X $pkg.gitVersion=v$version -X $pkg.gitMajor=1 -X $pkg.gitMinor=$minor"
build() {
	echo "build $1 of Kubernetes $version (once)"
	(cd $module && CGO_ENABLED=0 nice -n 10 "$go" build -trimpath -ldflags "$flags" -o "$dir/$1.new" "$2")
	mv "$dir/$1.new" "$dir/$1"
}
build etcd go.etcd.io/etcd/server/v3
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
build kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager
build kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler
echo "$stamp" >"$dir/stamp"
