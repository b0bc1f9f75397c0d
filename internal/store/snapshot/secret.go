package snapshot

import "fmt"

// MaxSecrets limits the secrets in a manifest. A sandbox that holds more is not captured.
const MaxSecrets = 1024

func (m *Manifest) validateSecrets() error {
	if n := len(m.Secrets); n > MaxSecrets {
		return fmt.Errorf("%d secrets, want at most %d", n, MaxSecrets)
	}
	for _, s := range m.Secrets {
		if !s.Valid() {
			return fmt.Errorf("secret %.80q is invalid", s.Name)
		}
	}
	return nil
}
