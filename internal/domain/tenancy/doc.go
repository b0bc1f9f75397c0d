// Package tenancy gives each tenant its own view of an engine: other tenants' objects do not exist in it, names
// are separate, and quotas apply. A View is an engine for one principal. Package httpapi has one for each request
// and no other access. The package keeps the list of public snapshots and each key's requests in the last minute.
// The engine knows each object's owner. Beware: a View's methods are written out one by one and do not embed an
// engine. A new method of the engine has to be considered here before a route can call it.
package tenancy
