package agents

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API of the package.
var GroupVersion = schema.GroupVersion{Group: "agents.x-k8s.io", Version: "v1beta1"}

// Prefix begins the keys of labels and annotations which agent-sandbox reserves.
const Prefix = "agents.x-k8s.io/"

// AddTo adds the types to a scheme.
func AddTo(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Sandbox{}, &SandboxList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Values of Sandbox's fields.
const (
	Running   = "Running"
	Suspended = "Suspended"
	Delete    = "Delete"
	Retain    = "Retain"
)

// Types of conditions.
const (
	Ready       = "Ready"
	IsSuspended = "Suspended"
	Finished    = "Finished"
)

// Reasons of conditions.
const (
	DependenciesReady    = "DependenciesReady"
	DependenciesNotReady = "DependenciesNotReady"
	SandboxSuspended     = "SandboxSuspended"
	SandboxExpired       = "SandboxExpired"
	PodFailed            = "PodFailed"
	PodTerminated        = "PodTerminated"
	NotSuspended         = "NotSuspended"
	InvalidConfiguration = "InvalidConfiguration"
	ReconcilerError      = "ReconcilerError"
)

// Sandbox is one sandbox.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Sandbox struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the wanted state.
	Spec SandboxSpec `json:"spec"`
	// Status is the observed state.
	Status SandboxStatus `json:"status,omitempty"`
}

// SandboxSpec is the wanted state of a sandbox.
type SandboxSpec struct {
	Blueprint `json:",inline"`
	// ShutdownTime is the time of the sandbox's end.
	ShutdownTime *metav1.Time `json:"shutdownTime,omitempty"`
	// ShutdownPolicy is the fate of the object at that time.
	// +kubebuilder:validation:Enum=Delete;Retain
	// +kubebuilder:default=Retain
	ShutdownPolicy string `json:"shutdownPolicy,omitempty"`
	// OperatingMode suspends the sandbox. Its memory and processes are kept.
	// +kubebuilder:validation:Enum=Running;Suspended
	// +kubebuilder:default=Running
	OperatingMode string `json:"operatingMode,omitempty"`
}

// Blueprint describes a sandbox to make. Templates have it, too.
type Blueprint struct {
	// PodTemplate describes the pod. forkd reads its annotations, labels and first container.
	PodTemplate PodTemplate `json:"podTemplate"`
	// VolumeClaimTemplates are refused unless they are empty.
	// +kubebuilder:pruning:PreserveUnknownFields
	VolumeClaimTemplates []runtime.RawExtension `json:"volumeClaimTemplates,omitempty"`
	// Service asks for a Service of the sandbox's own. True is refused.
	Service *bool `json:"service,omitempty"`
}

// PodTemplate describes a pod.
type PodTemplate struct {
	// Metadata has the labels and annotations of the pod.
	Metadata PodMetadata `json:"metadata,omitempty"`
	// Spec is a PodSpec.
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec runtime.RawExtension `json:"spec"`
}

// PodMetadata has labels and annotations.
type PodMetadata struct {
	// Labels become labels of the sandbox, without reserved ones.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations may have forkd.dev/snapshot.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// SandboxStatus is the observed state of a sandbox.
type SandboxStatus struct {
	// Conditions are Ready, Suspended and Finished.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// PodIPs is empty: sandboxes have no address in the cluster's network.
	PodIPs []string `json:"podIPs,omitempty"`
	// NodeName is the node of the sandbox.
	NodeName string `json:"nodeName,omitempty"`
	// SandboxID is the id of the sandbox on its node, a field of forkd.
	SandboxID string `json:"sandboxID,omitempty"`
	// Selector is empty: a sandbox has no pod.
	Selector string `json:"selector,omitempty"`
	// Service is empty.
	Service string `json:"service,omitempty"`
	// ServiceFQDN is empty.
	ServiceFQDN string `json:"serviceFQDN,omitempty"`
}

// SandboxList is a list of sandboxes.
//
// +kubebuilder:object:root=true
type SandboxList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the sandboxes.
	Items []Sandbox `json:"items"`
}
