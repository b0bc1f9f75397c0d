// Package openapi has schemathesis, unmodified, try the API against its own document: what is
// documented, what is not, and what nobody would send, with the keys of three who see different
// things. It runs where scripts/schemathesis.sh has installed it, over an engine without VMs.
package openapi
