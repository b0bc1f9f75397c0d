// Package keys stores API keys with their scopes, lifetimes and quotas. It creates and hashes keys, looks up a
// key by its text, and keeps all keys in one file. It does not know HTTP or the engine. Package auth asks it
// for the caller of a request, and package tenancy for a key's quotas. Beware: only Create and Rotate return a
// key's text, once. The text is not in the file, in errors or in logs.
package keys
