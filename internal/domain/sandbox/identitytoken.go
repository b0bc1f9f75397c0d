package sandbox

import "time"

// IdentityToken is a signed statement about a sandbox, for services that trust the daemon's issuer.
type IdentityToken struct {
	Text    string // JWT in compact form
	Expires time.Time
}

// IdentityIssuer signs identity tokens. It is safe for concurrent use.
type IdentityIssuer interface {
	// Mint returns a token about a sandbox for one audience. The error's kind is ErrInvalid for an audience that no
	// token has, and ErrForbidden for one that the operator does not allow.
	Mint(of Info, audience string) (IdentityToken, error)
}
