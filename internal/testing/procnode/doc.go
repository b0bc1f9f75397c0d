// Package procnode stands in for the nodes of a cluster in tests with a real control plane: for kubelets, for the
// container runtime, and for kube-proxy with the cluster's DNS. It runs the containers of scheduled pods as processes of
// this host, each in a root folder of its own with the pod's volumes, and reports the pods' status. Probes, environment,
// users, ServiceAccount tokens, preStop hooks and device plugins are honoured.
//
// A test calls Isolate first, so that all of it happens in namespaces of its own. The trap: the pods share one network.
// Each has an address, and 0.0.0.0 in arguments becomes that address. Capabilities, seccomp profiles, limits and
// NetworkPolicies have no effect, and a mounted Secret does not change later.
package procnode
