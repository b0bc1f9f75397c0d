package fleet

import (
	"maps"
	"strings"

	"github.com/forkd/forkd/api"
)

// Labels of a sandbox or snapshot that belongs to an object.
const (
	LabelKind      = "kube.kind"
	LabelNamespace = "kube.namespace"
	LabelName      = "kube.name"
	LabelUID       = "kube.uid"
	// LabelSandboxUID has the UID of the Sandbox of a claim.
	LabelSandboxUID = "kube.sandbox-uid"
	// reserved begins the keys of these labels.
	reserved = "kube."
)

// Owner is an object with sandboxes.
type Owner struct {
	// Kind is SandboxClaim, Sandbox or SandboxFork.
	Kind string
	// Namespace, Name and UID are the object's.
	Namespace, Name, UID string
}

// Labels returns the labels of the owner's sandboxes. Users cannot set or replace the reserved ones. The owner's come
// from the API server, which limits them to a part of a label's size.
func (o Owner) Labels(users map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range users {
		if !Reserved(k) {
			out[k] = v
		}
	}
	maps.Copy(out, map[string]string{LabelKind: o.Kind, LabelNamespace: o.Namespace, LabelName: o.Name, LabelUID: o.UID})
	return out
}

// Reserved reports whether a label's key is the operator's, or one of agent-sandbox's or forkd's own.
func Reserved(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return strings.HasPrefix(key, reserved) || domain == "forkd.dev" || strings.HasSuffix(domain, "agents.x-k8s.io")
}

// OwnerOf returns the owner in the labels of a sandbox. It reports false without one.
func OwnerOf(labels map[string]string) (Owner, bool) {
	o := Owner{Kind: labels[LabelKind], Namespace: labels[LabelNamespace], Name: labels[LabelName], UID: labels[LabelUID]}
	return o, o.UID != ""
}

// Of reports whether a sandbox belongs to the owner. The UID alone would not do: a user can write any UID into an owner
// reference.
func (o Owner) Of(sb api.SandboxInfo) bool {
	is, ok := OwnerOf(sb.Labels)
	return ok && is == o
}
