// Package openapi runs schemathesis, unmodified, against the API and its own document. It sends
// documented, undocumented and nonsensical requests, with the keys of three callers with different
// access. It runs where scripts/schemathesis.sh has installed schemathesis, over an engine without
// VMs.
package openapi
