// Package kube runs the operator and the gateway against a real control plane of Kubernetes. TestOverFakeNodes has fake
// engines behind real daemons as nodes, TestOverVMs `forkd serve` with VMs in a machine. TestTheChart installs the chart
// with Helm. `make test-kube` builds the control plane and runs the tests; elsewhere they are skipped. The trap: there is
// no kubelet. Only the test of the chart has pods, and procnode runs them.
package kube
