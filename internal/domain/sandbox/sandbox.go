// Package sandbox is the domain's vocabulary: what is asked of the engine and what
// it answers (requests, results, states, errors), as plain types. It does nothing:
// package engine and the rooms below it do. All of them may import it, as may what
// stands over the engine, such as httpapi, which so names no room of it. The trap:
// an Info or a SnapshotInfo is a copy; to change it changes nothing.
package sandbox
