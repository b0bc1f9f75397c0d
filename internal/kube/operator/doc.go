// Package operator reconciles the objects of agent-sandbox and of forkd with the sandboxes on the nodes. It owns the
// objects' statuses; internal/kube/fleet knows the sandboxes, and a gateway chooses their nodes. The trap: each
// write to
// an object is a write to etcd, and a claim has four of them at most, its creation included.
package operator
