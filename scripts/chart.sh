#!/bin/bash
# Checks the chart with Helm, and renders packaging/kustomize/base/forkd.yaml from it. With --check a difference is
# an error.
set -euo pipefail
cd "$(dirname "$0")/.."
helm=$(scripts/helm.sh)
chart=packaging/helm/forkd base=packaging/kustomize/base/forkd.yaml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$helm" lint --strict "$chart" >"$work/lint" || { cat "$work/lint" >&2; exit 1; }

# render NAME ARGUMENT...
render() { "$helm" template forkd "$chart" --namespace forkd --skip-tests "${@:2}" >"$work/$1"; }
secrets=(--set auth.existingSecret=forkd-auth --set tls.existingSecret=forkd-node-tls
	--set gateway.tls=secret --set gateway.tlsSecret=forkd-gateway-tls)
render default
render everything --set podMonitor.enabled=true --set prometheusRule.enabled=true --set gateway.tls=off \
	--set httpRoute.enabled=true --set 'httpRoute.parentRefs[0].name=gateway' --set node.privileged=true
render base "${secrets[@]}"
render nodes --set operator.enabled=false --set devicePlugin.enabled=false --set networkPolicy.enabled=false
# refused WHY ARGUMENT...: values that must not be rendered
refused() {
	if render refused "${@:2}" 2>"$work/error"; then
		echo "the chart accepts ${*:2}" >&2
		exit 1
	fi
	grep -q "$1" "$work/error" || { cat "$work/error" >&2; exit 1; }
}
# scopes NAME: the scopes of a key that the chart makes, as JSON without spaces
scopes() {
	sed -n 's/^  keys.json: //p' "$work/default" | sed 's/\\n//g; s/\\"/"/g; s/ //g' |
		sed -n 's/.*"name":"'"$1"'","scopes":\(\[[^]]*\]\).*/\1/p'
}
for key in 'gateway ["read"]' 'peer ["layers"]' 'resume ["read","fork"]'; do
	[ "$(scopes "${key%% *}")" = "${key#* }" ] || { echo "the key ${key%% *} has the scopes $(scopes "${key%% *}")" >&2; exit 1; }
done
grep -q -e '- --resume-key-file=' "$work/default"
for off in node.peers.enabled gateway.resumeElsewhere; do
	render without --set "$off=false"
	if grep resume "$work/without"; then
		echo "with $off=false the gateway still has a key to resume sandboxes" >&2
		exit 1
	fi
done
refused drain --set node.drain=never
refused nodes --set nodes.count=3
refused gateway.tls=off --set httpRoute.enabled=true
refused replicas --set operator.replicas=0
refused gateway.tlsSecret --set gateway.tls=secret

{
	echo "# Rendered from packaging/helm/forkd by make chart."
	grep -v '^# Source:' "$work/base" | sed '/^ *helm.sh\/chart:/d; s/managed-by: Helm/managed-by: kustomize/'
} >"$work/forkd.yaml"
crds=packaging/kubernetes/crds
if [ "${1-}" = --check ]; then
	diff -r --exclude=kustomization.yaml "$crds" "$chart/crds" || { echo "$chart/crds differs: run make chart" >&2; exit 1; }
	diff -u "$base" "$work/forkd.yaml" || { echo "$base is not that of the chart: run make chart" >&2; exit 1; }
else
	cp "$work/forkd.yaml" "$base"
	cp "$crds"/*.dev_*.yaml "$crds"/*.io_*.yaml "$chart/crds"
fi
cmp packaging/monitoring/forkd-alerts.yaml "$chart/files/alerts.yaml"
