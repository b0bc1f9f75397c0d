// Package router serves the router of agent-sandbox in front of a gateway: headers name the sandbox by namespace and
// name, and a request goes to a port of it. It answers agent-sandbox's old runtime API itself if the sandbox has no
// server
// at its port. The trap: the caller's credential is for Kubernetes, so it must reach neither the nodes nor the guest.
package router
