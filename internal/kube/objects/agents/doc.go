// Package agents has the wire types of agents.x-k8s.io/v1beta1, an API of kubernetes-sigs/agent-sandbox. They are our
// own reading of that API: the fields forkd maps have types, and the rest stays raw, so that it can be refused by name.
// The trap: a field without a place here would be pruned by the API server, and so be ignored in silence.
//
// +kubebuilder:object:generate=true
// +groupName=agents.x-k8s.io
// +versionName=v1beta1
package agents
