package forkdkinds

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API of the package.
var GroupVersion = schema.GroupVersion{Group: "forkd.dev", Version: "v1alpha1"}

// AddTo adds the types to a scheme.
func AddTo(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &SandboxSnapshot{}, &SandboxSnapshotList{}, &SandboxFork{}, &SandboxForkList{},
		&ForkdNode{}, &ForkdNodeList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Complete is the type of a fork's condition which is true after all children were made or failed.
const Complete = "Complete"

// SandboxSnapshot is a snapshot of a sandbox, on top of another snapshot, or from a registry.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Tag",type=string,JSONPath=`.status.tag`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.readyNodes`
// +kubebuilder:resource:scope=Namespaced
type SandboxSnapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec describes the snapshot.
	// +kubebuilder:validation:XValidation:rule="has(self.mode) == has(oldSelf.mode) && has(self.maxPauseMilliseconds) == has(oldSelf.maxPauseMilliseconds) && has(self.deletionPolicy) == has(oldSelf.deletionPolicy)",message="the spec of a SandboxSnapshot is immutable, except for distribution"
	Spec SandboxSnapshotSpec `json:"spec"`
	// Status is the observed state.
	Status SandboxSnapshotStatus `json:"status,omitempty"`
}

// SandboxSnapshotSpec describes a snapshot.
type SandboxSnapshotSpec struct {
	// Source is the origin of the snapshot.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a SandboxSnapshot is immutable, except for distribution"
	Source SnapshotSource `json:"source"`
	// Mode is the way to capture the memory of a sandbox.
	// +kubebuilder:validation:Enum=Live;Diff;Full
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a SandboxSnapshot is immutable, except for distribution"
	Mode string `json:"mode,omitempty"`
	// MaxPauseMilliseconds limits the pause of a sandbox.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600000
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a SandboxSnapshot is immutable, except for distribution"
	MaxPauseMilliseconds int32 `json:"maxPauseMilliseconds,omitempty"`
	// DeletionPolicy is the fate of the snapshot on the nodes when the object is deleted.
	// +kubebuilder:validation:Enum=Delete;Retain
	// +kubebuilder:default=Delete
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a SandboxSnapshot is immutable, except for distribution"
	DeletionPolicy string `json:"deletionPolicy,omitempty"`
	// Distribution asks for copies on more nodes. It can be changed.
	Distribution *SnapshotDistribution `json:"distribution,omitempty"`
}

// SnapshotDistribution says where copies of a snapshot are kept.
type SnapshotDistribution struct {
	// MinNodes is the number of nodes that have the snapshot. Others copy it until there are so many. A lower number
	// removes none.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinNodes int32 `json:"minNodes,omitempty"`
	// NodeSelector has labels of the Nodes that count, and that get copies. Empty means all.
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Repository is refused: the operator pushes no snapshots.
	// +kubebuilder:validation:MaxLength=512
	Repository string `json:"repository,omitempty"`
	// SecretRef is refused with Repository.
	SecretRef *SecretReference `json:"secretRef,omitempty"`
}

// SnapshotSource is the origin of a snapshot: exactly one field is set.
//
// +kubebuilder:validation:XValidation:rule="(has(self.sandbox)?1:0)+(has(self.snapshot)?1:0)+(has(self.artifact)?1:0)==1",message="set exactly one of sandbox, snapshot and artifact"
type SnapshotSource struct {
	// Sandbox is the name of a Sandbox of the same namespace.
	// +kubebuilder:validation:MinLength=1
	Sandbox string `json:"sandbox,omitempty"`
	// Snapshot is a parent, and a program to run in a child of it.
	Snapshot *ParentSnapshot `json:"snapshot,omitempty"`
	// Artifact is a snapshot in a registry.
	Artifact *ArtifactSource `json:"artifact,omitempty"`
}

// ArtifactSource is a snapshot in a registry.
type ArtifactSource struct {
	// Ref is HOST/REPOSITORY@sha256:DIGEST.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Ref string `json:"ref"`
	// SecretRef names a Secret of the same namespace with credentials for the registry.
	SecretRef *SecretReference `json:"secretRef,omitempty"`
}

// SecretReference names a Secret of the type kubernetes.io/dockerconfigjson.
type SecretReference struct {
	// Name is the name of the Secret.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// ParentSnapshot is the parent of a snapshot, and the change to it.
type ParentSnapshot struct {
	// Name is a SandboxSnapshot of the same namespace, or a shared snapshot of the nodes.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Exec is the program to run, and its arguments.
	// +kubebuilder:validation:MaxItems=4096
	Exec []string `json:"exec,omitempty"`
	// User runs Exec. Empty means the image's user.
	User string `json:"user,omitempty"`
	// TimeoutSeconds limits Exec.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// SandboxSnapshotStatus is the observed state of a snapshot.
type SandboxSnapshotStatus struct {
	// Tag is the snapshot's name on the nodes.
	Tag string `json:"tag,omitempty"`
	// Parent is the tag of its parent.
	Parent string `json:"parent,omitempty"`
	// ArtifactDigest is the digest of the artifact from which it was made.
	ArtifactDigest string `json:"artifactDigest,omitempty"`
	// Shape is the size of its sandboxes.
	Shape *Shape `json:"shape,omitempty"`
	// Bytes is the size of its own layers.
	Bytes int64 `json:"bytes,omitempty"`
	// PauseMilliseconds is the pause of the sandbox, rounded up.
	PauseMilliseconds int64 `json:"pauseMilliseconds,omitempty"`
	// Nodes are nodes that have the snapshot, copy it, or could not. It is kept with a distribution only.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	Nodes []SnapshotNode `json:"nodes,omitempty"`
	// ReadyNodes is the number of nodes that count for minNodes.
	ReadyNodes int32 `json:"readyNodes,omitempty"`
	// Conditions are Ready, with a distribution Distributed, and Published for refused fields.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SnapshotNode is a node with a snapshot, or one that was asked to copy it.
type SnapshotNode struct {
	// Name is the name of the node.
	Name string `json:"name"`
	// State is Ready, Copying, Failed, Draining, Silent, or NotSelected by the labels. Only Ready counts.
	State string `json:"state"`
	// Reason is the code of the error of a node that failed.
	Reason string `json:"reason,omitempty"`
	// Message is its error.
	Message string `json:"message,omitempty"`
}

// Conditions of a snapshot beside Ready.
const (
	Distributed = "Distributed"
	Published   = "Published"
)

// Shape is the size of a VM.
type Shape struct {
	// MemoryMiB is its memory.
	MemoryMiB int32 `json:"memoryMiB"`
	// VCPUs is the number of its processors.
	VCPUs int32 `json:"vcpus"`
}

// SandboxSnapshotList is a list of snapshots.
//
// +kubebuilder:object:root=true
type SandboxSnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the snapshots.
	Items []SandboxSnapshot `json:"items"`
}

// SandboxFork is a fork of many children. They have no objects of their own.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Count",type=integer,JSONPath=`.spec.count`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failed`
// +kubebuilder:resource:scope=Namespaced
type SandboxFork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec describes the fork.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a SandboxFork is immutable"
	Spec SandboxForkSpec `json:"spec"`
	// Status is the observed state.
	Status SandboxForkStatus `json:"status,omitempty"`
}

// SandboxForkSpec describes a fork.
type SandboxForkSpec struct {
	// Source is the parent of the children.
	Source ForkSource `json:"source"`
	// Count is the number of children.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Count int32 `json:"count"`
	// Env is added to the environment of programs in the children.
	// +kubebuilder:validation:MaxProperties=256
	Env map[string]string `json:"env,omitempty"`
	// ShutdownTime is the end of the children.
	ShutdownTime *metav1.Time `json:"shutdownTime,omitempty"`
	// MinReady is the number of children for Ready. 0 means all.
	// +kubebuilder:validation:Minimum=0
	MinReady int32 `json:"minReady,omitempty"`
}

// ForkSource is the parent of a fork: exactly one field is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.sandbox) != has(self.snapshot)",message="set exactly one of sandbox and snapshot"
type ForkSource struct {
	// Snapshot is a SandboxSnapshot of the same namespace, or a shared snapshot of the nodes.
	// +kubebuilder:validation:MinLength=1
	Snapshot string `json:"snapshot,omitempty"`
	// Sandbox is the name of a running Sandbox of the same namespace.
	// +kubebuilder:validation:MinLength=1
	Sandbox string `json:"sandbox,omitempty"`
}

// SandboxForkStatus is the observed state of a fork.
type SandboxForkStatus struct {
	// Children has a row for each child.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	Children []ForkChild `json:"children,omitempty"`
	// Ready is the number of running children.
	// +optional
	Ready int32 `json:"ready"`
	// Failed is the number of children that were not made, or have ended.
	// +optional
	Failed int32 `json:"failed"`
	// ReadyWallMicroseconds is the time to the last ready child, by the node's clock.
	ReadyWallMicroseconds int64 `json:"readyWallMicroseconds,omitempty"`
	// Conditions are Ready and Complete.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ForkChild is one child of a fork.
type ForkChild struct {
	// Index is 1 for the first child.
	Index int32 `json:"index"`
	// ID is the id of the sandbox. It is empty for a child that was not made.
	ID string `json:"id,omitempty"`
	// Node is the node of the sandbox, if it is known.
	Node string `json:"node,omitempty"`
	// Phase is Running, Failed or Ended.
	Phase string `json:"phase"`
	// Code is the code of a failed child's error.
	Code string `json:"code,omitempty"`
	// Message is the error of a failed child.
	Message string `json:"message,omitempty"`
}

// Phases of a child.
const (
	ChildRunning = "Running"
	ChildFailed  = "Failed"
	ChildEnded   = "Ended"
)

// SandboxForkList is a list of forks.
//
// +kubebuilder:object:root=true
type SandboxForkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the forks.
	Items []SandboxFork `json:"items"`
}
