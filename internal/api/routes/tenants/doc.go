// Package tenants has the routes of a tenant and its objects: keys, secrets, volumes, private networks, and the
// tenant's share of CPU time. The trap: each handler decides by the caller's principal whose objects it may show,
// because the stores know all tenants.
package tenants
