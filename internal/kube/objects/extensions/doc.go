// Package extensions has the wire types of extensions.agents.x-k8s.io/v1beta1, an API of
// kubernetes-sigs/agent-sandbox: templates, warm pools and claims. They are our own reading of that API. The trap is
// that of package agents: fields of the API need a place here, or they are pruned.
//
// +kubebuilder:object:generate=true
// +groupName=extensions.agents.x-k8s.io
// +versionName=v1beta1
package extensions
