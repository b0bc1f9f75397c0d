// Package deviceplugin offers a node's devices to the containers of forkd by Kubernetes' device plugin API, v1beta1
// (k8s.io/kubelet). So a container gets /dev/kvm without being privileged: a host path alone is refused by the
// container's device cgroup. A container that requests one unit of the resource gets all devices.
//
// It opens no device: it needs no rights but those to its socket's folder. The daemon measures whether KVM works. The
// trap: the kubelet removes all sockets when it starts, and each plugin has to notice this and register anew.
package deviceplugin
