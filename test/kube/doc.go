// Package kube runs the operator and the gateway against a real control plane of Kubernetes. TestOverFakeNodes has fake
// engines behind real daemons as nodes, TestOverVMs `forkd serve` with VMs in a machine. `make test-kube` builds the
// control plane and runs the tests; elsewhere they are skipped. The trap: there is no kubelet, so no test has a pod.
package kube
