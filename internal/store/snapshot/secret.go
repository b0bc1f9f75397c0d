package snapshot

import (
	"fmt"
	"regexp"
)

// Secret identifies a value of a tenant's secret, without the value.
type Secret struct {
	Name    string `json:"name"`
	ID      string `json:"id"`      // never used for another secret
	Version int    `json:"version"` // of the value
}

// MaxSecrets limits the secrets in a manifest. A sandbox that holds more is not captured.
const MaxSecrets = 1024

var secretPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (m *Manifest) validateSecrets() error {
	if n := len(m.Secrets); n > MaxSecrets {
		return fmt.Errorf("%d secrets, want at most %d", n, MaxSecrets)
	}
	for _, s := range m.Secrets {
		if !secretPattern.MatchString(s.Name) || !secretPattern.MatchString(s.ID) || s.Version < 1 {
			return fmt.Errorf("secret %.80q is invalid", s.Name)
		}
	}
	return nil
}
