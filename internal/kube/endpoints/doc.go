// Package endpoints lists the nodes of a cluster from Kubernetes' API: the EndpointSlices of a headless Service that
// selects the pods of `forkd serve`. An endpoint has the node's name and the pod's address, so no list has
// to be written. Only the gateway uses it. The trap: while a pod is replaced, a node can have two endpoints; only one is used.
package endpoints
