// Package secretid identifies values of tenants' secrets, without the values. Manifests of snapshots and records of
// sandboxes list the secrets that memory and disks may contain.
package secretid

import "regexp"

// Secret identifies a value of a tenant's secret.
type Secret struct {
	Name    string `json:"name"`
	ID      string `json:"id"`      // never used for another secret
	Version int    `json:"version"` // of the value
}

var pattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Valid reports whether a secret can have this name, id and version.
func (s Secret) Valid() bool {
	return pattern.MatchString(s.Name) && pattern.MatchString(s.ID) && s.Version >= 1
}
