//go:build never

// Package controlplane pins the programs of a Kubernetes control plane. It is never compiled:
// its imports keep the programs in go.mod.
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
)
