package forkdkinds

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ForkdNode shows a node's capacity, pools and snapshots. The operator makes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.sandboxes.running`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:resource:scope=Cluster
type ForkdNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is the observed state.
	Status ForkdNodeStatus `json:"status,omitempty"`
}

// ForkdNodeStatus is the observed state of a node. Amounts are rounded, so that small changes cause no write.
type ForkdNodeStatus struct {
	// Address is the address of the daemon.
	Address string `json:"address,omitempty"`
	// UID is the daemon's --node-uid.
	UID string `json:"uid,omitempty"`
	// Key is the end of the ids of the node's sandboxes.
	Key string `json:"key,omitempty"`
	// Version is the version of the daemon.
	Version string `json:"version,omitempty"`
	// Kernel is the release of the host's kernel.
	Kernel string `json:"kernel,omitempty"`
	// Memory is the memory for sandboxes.
	Memory NodeMemory `json:"memory,omitempty"`
	// Sandboxes are numbers of sandboxes.
	Sandboxes NodeSandboxes `json:"sandboxes,omitempty"`
	// Pools are the pools of prepared shells.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	Pools []NodePool `json:"pools,omitempty"`
	// Snapshots are the newest snapshots.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	Snapshots []NodeSnapshot `json:"snapshots,omitempty"`
	// Conditions are Ready, and DiskPressure if less than 15 % of the store's file system are free.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeMemory is memory in steps of 64 MiB.
type NodeMemory struct {
	// BudgetMiB is the total.
	BudgetMiB int64 `json:"budgetMiB,omitempty"`
	// UsedMiB is the used part.
	UsedMiB int64 `json:"usedMiB,omitempty"`
}

// NodeSandboxes are numbers of sandboxes.
type NodeSandboxes struct {
	// Running is the number of running sandboxes.
	// +optional
	Running int32 `json:"running"`
}

// NodePool is a pool of shells.
type NodePool struct {
	// Tag is the snapshot.
	Tag string `json:"tag"`
	// Ready is the number of ready shells, Want the wanted number.
	Ready int32 `json:"ready"`
	// Want is the wanted number of shells.
	Want int32 `json:"want"`
}

// NodeSnapshot is a snapshot on a node.
type NodeSnapshot struct {
	// Tag is its name.
	Tag string `json:"tag"`
	// ContentHash is the digest of its manifest.
	ContentHash string `json:"contentHash,omitempty"`
	// Bytes is its size on the node's disk.
	Bytes int64 `json:"bytes,omitempty"`
}

// ForkdNodeList is a list of nodes.
//
// +kubebuilder:object:root=true
type ForkdNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the nodes.
	Items []ForkdNode `json:"items"`
}
