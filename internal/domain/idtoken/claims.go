package idtoken

import (
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// MaxAudience is the largest audience, in bytes.
const MaxAudience = 512

// Claims are the content of a token; see docs/use/identity.md.
type Claims struct {
	jwt.Claims
	Tenant         string `json:"tenant,omitempty"` // empty for the operator's sandboxes
	Sandbox        string `json:"sandbox"`
	Snapshot       string `json:"snapshot"` // tag at the time of the fork, or of the last rollback
	SnapshotDigest string `json:"snapshot_digest,omitempty"`
	Parent         string `json:"parent,omitempty"` // sandbox that it was forked from; empty if its snapshot was made from an image
	ForkIndex      int    `json:"fork_index"`       // 1 to N in the call that forked it
}

// about returns the claims that depend on the sandbox only.
func about(i sandbox.Info) Claims {
	c := Claims{Tenant: i.Owner, Sandbox: i.ID, Parent: i.ParentSandbox(), ForkIndex: i.Index,
		Snapshot: i.SnapshotTag, SnapshotDigest: i.SnapshotHash}
	if i.RolledBackTo != "" {
		c.Snapshot, c.SnapshotDigest = i.RolledBackTo, i.RolledBackHash
	}
	c.Subject = Subject(i.Owner, i.ID)
	return c
}

// Subject returns the sub claim of a sandbox. Two sandboxes never have the same subject.
func Subject(tenant, id string) string {
	if tenant == "" {
		return "operator:sandbox:" + escape(id)
	}
	return "tenant:" + escape(tenant) + ":sandbox:" + escape(id)
}

// escape encodes all bytes but letters, digits, dot, dash and underscore as %XX, so that no name contains a
// separator or a wildcard of a relying party's rules.
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// checkAudience refuses an audience with other bytes than printable ASCII. Relying parties use URLs and names.
func checkAudience(a string) error {
	switch {
	case a == "":
		return sandbox.Errorf(sandbox.ErrInvalid, "", "the audience is empty: name the service that will check the token")
	case len(a) > MaxAudience:
		return sandbox.Errorf(sandbox.ErrInvalid, "", "the audience has %d bytes, want at most %d", len(a), MaxAudience)
	case strings.ContainsFunc(a, func(r rune) bool { return r <= ' ' || r > '~' }):
		return sandbox.Errorf(sandbox.ErrInvalid, "", "the audience has characters other than printable ASCII without spaces")
	}
	return nil
}
