// Package fleet is the operator's view of sandboxes on all nodes. Each sandbox of an object in Kubernetes has labels
// with that object's kind, namespace, name and UID. So an operator that starts finds its sandboxes again, and ends the
// ones without an object. The trap: a list lacks the sandboxes of a node that does not answer, so only an answer about
// the sandbox itself proves its end.
package fleet
