package hub

import "fmt"

// Origin is the place of a snapshot in a registry. It has no credentials.
type Origin struct {
	Ref       string   `json:"ref"`                  // host/repository, with @digest or :tag
	Mirrors   []string `json:"mirrors,omitempty"`    // asked before the registry: http(s)://HOST[:PORT][/PREFIX]
	PlainHTTP bool     `json:"plain_http,omitempty"` // no TLS
}

// Source is an origin with credentials, for a daemon that fetches the rest of a snapshot itself.
type Source struct {
	Origin
	Logins []Login `json:"logins,omitempty"`
}

// Login is a credential for one host.
type Login struct {
	Host          string `json:"host"`
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	IdentityToken string `json:"identity_token,omitempty"` // exchanged for access tokens
	RegistryToken string `json:"registry_token,omitempty"` // an access token
}

// Limits of a source.
const (
	maxSource  = 256 << 10 // bytes
	maxRef     = 1024      // bytes
	maxMirrors = 16
)

func (s *Source) check() error {
	if s.Ref == "" || len(s.Ref) > maxRef || len(s.Mirrors) > maxMirrors || len(s.Logins) > maxMirrors+1 {
		return fmt.Errorf("the source has %d mirrors, %d logins and a reference of %d bytes", len(s.Mirrors), len(s.Logins),
			len(s.Ref))
	}
	return nil
}

// lateBytes is the size from which a part of a snapshot may arrive late. Smaller ones travel in the stream.
const lateBytes = 1 << 20

// Late reports whether part i of a snapshot may arrive late. The state, which is the first, may not.
func Late(parts []Part, i int) bool { return i > 0 && parts[i].Content >= lateBytes }

// Early returns the blobs of a snapshot that a lazy stream needs: all except the frames of late parts.
func (a *Artifact) Early() ([]Descriptor, error) {
	parts, err := a.Parts()
	if err != nil {
		return nil, err
	}
	out := []Descriptor{a.Config}
	for i, p := range parts {
		if out = append(out, p.Table); !Late(parts, i) {
			out = append(out, p.Frames)
		}
	}
	return out, nil
}
