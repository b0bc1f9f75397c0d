// Package forkdkinds has the wire types of forkd.dev/v1alpha1: snapshots, forks and nodes. The specs are immutable: a
// change would need another snapshot or other children. Only the distribution of a snapshot can be changed. The trap:
// ForkdNode has no namespace, the others have one.
//
// +kubebuilder:object:generate=true
// +groupName=forkd.dev
// +versionName=v1alpha1
package forkdkinds
