package extensions

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/forkd/forkd/internal/kube/objects/agents"
)

// GroupVersion is the API of the package.
var GroupVersion = schema.GroupVersion{Group: "extensions.agents.x-k8s.io", Version: "v1beta1"}

// AddTo adds the types to a scheme.
func AddTo(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &SandboxTemplate{}, &SandboxTemplateList{}, &SandboxWarmPool{}, &SandboxWarmPoolList{},
		&SandboxClaim{}, &SandboxClaimList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Values of fields, and reasons of conditions.
const (
	DeleteForeground         = "DeleteForeground"
	EnvDisallowed            = "Disallowed"
	EnvAllowed               = "Allowed"
	EnvOverrides             = "Overrides"
	ClaimExpired             = "ClaimExpired"
	WarmPoolNotFound         = "WarmPoolNotFound"
	TemplateNotFound         = "TemplateNotFound"
	EnvVarsInjectionRejected = "EnvVarsInjectionRejected"
	VolumeClaimTemplates     = "VolumeClaimTemplatesError"
	SandboxMissing           = "SandboxMissing"
)

// SandboxTemplate describes sandboxes of a pool.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
type SandboxTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec describes the sandboxes.
	Spec SandboxTemplateSpec `json:"spec"`
}

// SandboxTemplateSpec describes sandboxes.
type SandboxTemplateSpec struct {
	agents.Blueprint `json:",inline"`
	// NetworkPolicy is refused unless it is empty.
	// +kubebuilder:pruning:PreserveUnknownFields
	NetworkPolicy *runtime.RawExtension `json:"networkPolicy,omitempty"`
	// NetworkPolicyManagement names the maker of network policies. forkd makes no objects for policies.
	// +kubebuilder:validation:Enum=Managed;Unmanaged
	NetworkPolicyManagement string `json:"networkPolicyManagement,omitempty"`
	// EnvVarsInjectionPolicy decides about the environment of claims. Disallowed by default.
	// +kubebuilder:validation:Enum=Disallowed;Allowed;Overrides
	EnvVarsInjectionPolicy string `json:"envVarsInjectionPolicy,omitempty"`
	// VolumeClaimTemplatesPolicy decides about the volumes of claims, which forkd refuses.
	// +kubebuilder:validation:Enum=Disallowed;Allowed;Overrides
	VolumeClaimTemplatesPolicy string `json:"volumeClaimTemplatesPolicy,omitempty"`
}

// SandboxTemplateList is a list of templates.
//
// +kubebuilder:object:root=true
type SandboxTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the templates.
	Items []SandboxTemplate `json:"items"`
}

// SandboxWarmPool keeps sandboxes of a template ready. With forkd these are prepared shells, without objects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:resource:scope=Namespaced
type SandboxWarmPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the wanted state.
	Spec SandboxWarmPoolSpec `json:"spec"`
	// Status is the observed state.
	Status SandboxWarmPoolStatus `json:"status,omitempty"`
}

// SandboxWarmPoolSpec is the wanted state of a pool.
type SandboxWarmPoolSpec struct {
	// Replicas is the number of shells to keep ready, over all nodes.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=0
	Replicas int32 `json:"replicas"`
	// TemplateRef names the template.
	TemplateRef Ref `json:"sandboxTemplateRef"`
	// UpdateStrategy is accepted: shells of a changed template are replaced at once.
	UpdateStrategy *UpdateStrategy `json:"updateStrategy,omitempty"`
	// ReadinessGracePeriodSeconds is accepted and not needed.
	ReadinessGracePeriodSeconds *int32 `json:"readinessGracePeriodSeconds,omitempty"`
}

// UpdateStrategy is the way to replace members of a pool.
type UpdateStrategy struct {
	// Type is the name of the strategy.
	// +kubebuilder:validation:Enum=OnReplenish;Recreate
	Type string `json:"type,omitempty"`
}

// Ref names an object of the same namespace.
type Ref struct {
	// Name is its name.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// SandboxWarmPoolStatus is the observed state of a pool.
type SandboxWarmPoolStatus struct {
	// Replicas is the number of shells.
	// +optional
	Replicas int32 `json:"replicas"`
	// ReadyReplicas is the number of ready shells.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// Selector is for the scale subresource. It selects no pod.
	Selector string `json:"selector,omitempty"`
	// ObservedGeneration is the generation of the spec that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Snapshot is the tag of the snapshot of the shells, a field of forkd.
	Snapshot string `json:"snapshot,omitempty"`
	// Conditions has Ready.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// SandboxWarmPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type SandboxWarmPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the pools.
	Items []SandboxWarmPool `json:"items"`
}

// SandboxClaim asks for a sandbox of a pool.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Sandbox",type=string,JSONPath=`.status.sandbox.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:resource:scope=Namespaced
type SandboxClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the wanted state.
	Spec SandboxClaimSpec `json:"spec"`
	// Status is the observed state.
	Status SandboxClaimStatus `json:"status,omitempty"`
}

// SandboxClaimSpec is the wanted state of a claim.
type SandboxClaimSpec struct {
	// WarmPoolRef names the pool. It need not have ready shells.
	WarmPoolRef Ref `json:"warmPoolRef"`
	// Lifecycle limits the lifetime.
	Lifecycle *Lifecycle `json:"lifecycle,omitempty"`
	// AdditionalPodMetadata has more labels of the sandbox.
	AdditionalPodMetadata *agents.PodMetadata `json:"additionalPodMetadata,omitempty"`
	// Env is added to the environment of programs in the sandbox. It costs no cold start.
	// +kubebuilder:validation:MaxItems=256
	Env []EnvVar `json:"env,omitempty"`
	// VolumeClaimTemplates are refused unless they are empty.
	// +kubebuilder:pruning:PreserveUnknownFields
	VolumeClaimTemplates []runtime.RawExtension `json:"volumeClaimTemplates,omitempty"`
}

// Lifecycle limits the lifetime of a claim.
type Lifecycle struct {
	// ShutdownTime is the end of the sandbox.
	ShutdownTime *metav1.Time `json:"shutdownTime,omitempty"`
	// TTLSecondsAfterFinished is the time from the sandbox's end to the deletion of the claim.
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// ShutdownPolicy is the fate of the claim at ShutdownTime.
	// +kubebuilder:validation:Enum=Delete;DeleteForeground;Retain
	// +kubebuilder:default=Retain
	ShutdownPolicy string `json:"shutdownPolicy,omitempty"`
}

// EnvVar is a variable of the environment.
type EnvVar struct {
	// Name is its name.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Value is its value.
	Value string `json:"value,omitempty"`
	// ContainerName is empty, or the name of the template's container.
	ContainerName string `json:"containerName,omitempty"`
}

// SandboxClaimStatus is the observed state of a claim.
type SandboxClaimStatus struct {
	// Conditions has Ready, and Finished after the end.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Sandbox is the claim's sandbox.
	Sandbox BoundSandbox `json:"sandbox,omitempty"`
}

// BoundSandbox names the Sandbox of a claim.
type BoundSandbox struct {
	// Name is the name of the Sandbox, and the id of the sandbox on its node.
	Name string `json:"name,omitempty"`
	// PodIPs is empty.
	PodIPs []string `json:"podIPs,omitempty"`
}

// SandboxClaimList is a list of claims.
//
// +kubebuilder:object:root=true
type SandboxClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the claims.
	Items []SandboxClaim `json:"items"`
}
