// Package secrets stores tenants' named secrets, encrypted at rest. It owns the key file, the format of the files
// and the versions. It does not know HTTP or guests: package httpapi sets and removes secrets, and the engine asks
// for a value when it gives it to a sandbox (docs/use/secrets.md). Beware: only Value returns a value. Values are
// in no error, log or list, and the package does not keep them in memory.
package secrets
